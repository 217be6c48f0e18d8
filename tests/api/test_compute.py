"""A service whose predictions are computed beside it: the same answers, and none that takes too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import httpx
import pytest

from autotuner.search.compute import ComputeService, Inline
from autotuner.service.compute import ComputePool, Limits, asker
from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.bodies import CPU, EIGHT, PLAN
from tests.api.service import app_on, serve
from tests.api.test_plans import computed

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

LAYOUT = {"tensor_parallel_degree": 8, "recompute": "full"}

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "the best of a space": ("/predictions", EIGHT | {"limit": 3}),
    "what a format can say": ("/predictions", EIGHT | {"limit": 1, "format": "torchtitan", "current": LAYOUT}),
    "a space where nothing fits": (
        "/predictions",
        EIGHT | {"model": "llama-3-70b", "space": {"tensor_parallel_degree": [8]}},
    ),
    "an empty space": ("/predictions", EIGHT | {"space": {"tensor_parallel_degree": [3]}}),
    "one layout": ("/predictions", EIGHT | {"layout": LAYOUT, "measured": [{"layout": LAYOUT, "step_time_s": 2.0}]}),
    "an illegal layout": ("/predictions", EIGHT | {"layout": {"tensor_parallel_degree": 3}}),
    "an explanation": ("/explanations", EIGHT | {"layout": LAYOUT}),
    "an export": ("/exports", EIGHT | {"layout": LAYOUT, "format": "megatron-lm"}),
    "an import": ("/imports", {"text": "--tensor-model-parallel-size 8", "num_ranks": 8}),
    "a broken import": ("/imports", {"text": "nothing that is known"}),
    "a sweep that no trial can run": ("/sweeps", CPU | {"space": {"tensor_parallel_degree": [3]}}),
}

FROZE = {
    "recompute": ["full"],
    "recompute_every": list(range(1, 1001)),
    "gradient_bucket_bytes": list(range(1, 301)),
}
"""What once took 7 GB and stopped the process for a minute, as far as one axis may be named."""


@contextmanager
def service(compute: ComputeService | None = None) -> Iterator[httpx.Client]:
    app = app_on(memory_store())
    app = app if compute is None else replace(app, compute=compute)
    with serve(app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client
    app.close()


def pool(seconds: float = 60.0, memory_bytes: int = 2_000_000_000) -> ComputePool:
    limits = Limits(seconds=seconds, memory_bytes=memory_bytes)
    return ComputePool(2, limits)


@pytest.fixture(scope="module")
def beside() -> Iterator[httpx.Client]:
    with service(pool()) as client:
        yield client


@pytest.fixture(scope="module")
def inside() -> Iterator[httpx.Client]:
    with service() as client:
        yield client


@pytest.mark.parametrize("what", ASKED)
def test_a_compute_subprocess_gives_the_same_answer_as_the_service(
    beside: httpx.Client, inside: httpx.Client, what: str
) -> None:
    path, body = ASKED[what]
    theirs, ours = beside.post(path, json=body), inside.post(path, json=body)
    assert (theirs.status_code, theirs.json()) == (ours.status_code, ours.json())


@pytest.mark.parametrize("path", ["/predictions", "/sweeps"])
def test_a_space_that_once_froze_the_service_is_refused_with_its_number(inside: httpx.Client, path: str) -> None:
    answer = inside.post(path, json=(EIGHT if path == "/predictions" else CPU) | {"space": FROZE})
    assert (answer.status_code, answer.json()["field"]) == (422, "space")
    assert answer.json()["value"] > answer.json()["nearest"] > 0
    assert "1000 of recompute_every, 300 of gradient_bucket_bytes" in answer.json()["rule"]


def test_a_prediction_that_takes_longer_than_it_may_is_refused_with_the_time() -> None:
    with service(pool(seconds=0.05)) as client:
        answer = client.post("/predictions", json=EIGHT | {"cluster": "h100:1024", "model": "deepseek-v3"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:autotuner:problem:too-costly")
    assert answer.json()["detail"] == (
        "this computation takes longer than 0.05 s; ask for less, such as a smaller cluster or fewer values"
    )


def test_a_prediction_that_takes_more_memory_than_it_may_is_refused_with_the_bytes() -> None:
    with service(pool(memory_bytes=10_000_000)) as client:
        answer = client.post("/predictions", json=EIGHT | {"cluster": "h100:1024", "model": "deepseek-v3"})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:autotuner:problem:too-costly")
    assert "of memory; ask for less, such as a smaller cluster or fewer values" in answer.json()["detail"]


class Recorded(Inline):
    """Computes at once, and remembers whose share each computation counts against."""

    def __init__(self) -> None:
        self.callers: list[str] = []

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        self.callers.append(asker())
        return super().ask(function, *args, **kwargs)

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        self.callers.append(asker())
        return super().search(function, *args, **kwargs)


def test_a_computation_counts_against_the_share_of_who_asked_for_it_a_plan_s_pieces_too() -> None:
    recorded = Recorded()
    app = replace(app_on(memory_store(), login="tokens"), compute=recorded)
    with serve(app) as address:
        people = People(app=app, address=address)
        with people.client(name="ada") as ada, people.client(name="bob") as bob:
            assert ada.post("/predictions", json=EIGHT | {"layout": LAYOUT}).status_code == 200
            assert set(recorded.callers) == {"ada"}
            recorded.callers.clear()
            assert computed(bob, bob.post("/plans", json=PLAN).json()["id"])["result"]
            assert set(recorded.callers) == {"bob"}
    app.close()
