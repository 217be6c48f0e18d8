"""The client of Python against the service that it is written for."""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

import httpx
import pytest

from autotuner.api.openapi import examples
from autotuner.core.choices import Precision
from autotuner.core.documents import restore
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import PredictionRequest
from autotuner.core.run import Run, RunState, StopReason
from autotuner.core.sweep import SweepRun
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.workload import Workload
from autotuner.remote import Remote, ServiceError
from tests.api.service import StoreDriver, openapi_document

WORKLOAD = Workload(seq_len=4096, global_batch_size=64)
SWEEP = SweepCreate(model="llama-3-8b", cluster="h100:8", workload=WORKLOAD, space={"precision": (Precision.BF16,)})
STREAMED = {"stream_events"}
"""What ``events`` reads, and no call."""


@pytest.fixture(scope="module")
def paths() -> dict[str, tuple[str, str]]:
    """The method and path of each operation of which a call reads the answer."""
    return {
        operation["operationId"]: (method, path)
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in STREAMED
    }


def answer_of(name: str) -> Any:
    """What the call of an operation reads."""
    return get_type_hints(getattr(Remote, name))["return"]


@pytest.fixture
def calls(address: str) -> Iterator[Remote]:
    with Remote(address) as client:
        yield client


class _Asked(Exception):
    """Raised in the place of an answer: what a client asked for."""


def _unanswered(request: httpx.Request) -> httpx.Response:
    raise _Asked(request.method.lower(), request.url.path)


def test_every_operation_is_a_call_of_that_name_and_path(paths: dict[str, tuple[str, str]]) -> None:
    client = Remote("http://nowhere", http=httpx.Client(transport=httpx.MockTransport(_unanswered)))
    for name, (method, path) in paths.items():
        call = getattr(client, name)
        given = {
            parameter.name: Run if parameter.name == "kind" else parameter.name
            for parameter in inspect.signature(call).parameters.values()
            if parameter.default is parameter.empty
        }
        with pytest.raises(_Asked) as asked:
            call(**given)
        assert asked.value.args == (method, path.format(**given)), name


def test_an_answer_is_read_as_what_the_service_sent_and_a_field_that_it_has_more_is_left_out(
    paths: dict[str, tuple[str, str]],
) -> None:
    read = {name: answer_of(name) for name in paths if hasattr(answer_of(name), "__dataclass_fields__")}
    assert len(read) > 50
    for name, answer in read.items():
        sent = examples()[name]["answer"]
        assert restore(answer, sent | {"of_a_newer_release": {"a": 1}}) == restore(answer, sent), name


def test_a_sweep_is_created_once_per_key_and_followed_to_its_end(calls: Remote) -> None:
    sweep = calls.create_sweep(SWEEP, idempotency_key="nightly")
    assert calls.create_sweep(SWEEP, idempotency_key="nightly").id == sweep.id
    assert sweep.request.space.values("precision") == (Precision.BF16,)
    assert calls.list_sweeps(state=RunState.QUEUED).total == 1
    assert calls.cancel_run(SweepRun, sweep.id).state is RunState.CANCELLED
    assert calls.wait(sweep.id).stop_reason is StopReason.CANCELLED
    assert [event.kind for event in calls.events(sweep.id)] == ["sweep.created", "sweep.finished"]


def test_measurements_of_a_worker_are_ranked_with_the_types_of_the_service(calls: Remote, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0)
    driver.finish(sweep)
    (ranked,) = calls.rank_sweep(sweep.id).items
    assert ranked.id == trial.id
    assert calls.read_trial(trial.id).layout == trial.layout
    assert calls.list_trials(sweep.id).items[0].measurement == trial.measurement


def test_a_prediction_is_asked_for_with_types_and_names_alike(calls: Remote) -> None:
    model: TransformerSpec = calls.read_model("llama-3-8b")
    by_name, by_value = (
        calls.predict(PredictionRequest(model=asked, cluster="h100:8", workload=WORKLOAD, limit=1)).items[0]
        for asked in ("llama-3-8b", model)
    )
    assert by_name.layout == by_value.layout
    assert by_name.prediction.mfu == by_value.prediction.mfu


def test_a_problem_says_field_value_rule_and_nearest(calls: Remote) -> None:
    with pytest.raises(ServiceError) as caught:
        calls.create_sweep(SweepCreate(model="llama-3-8c", cluster="h100:8", workload=WORKLOAD))
    assert caught.value.status == 404
    assert caught.value.problem["nearest"] == "llama-3-8b"


def test_text_comes_as_text(calls: Remote) -> None:
    assert calls.atom_feed().startswith("<?xml")
    assert calls.json_feed()["version"].startswith("https://jsonfeed.org/")


# ---------------------------------------------------------------- streams that are cut
def event(sequence: int, kind: str) -> str:
    return f'id: {sequence}\nevent: {kind}\ndata: {{"at":1.0}}\n\n'


@contextmanager
def cutting(parts: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that gives one part to each connection, then hangs up; and what it was asked for."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for number, part in enumerate(parts):
                with listener.accept()[0] as connection:
                    request = connection.recv(65536).decode().lower()
                    asked.append(request.partition("last-event-id: ")[2].splitlines()[0])
                    body = part.encode()
                    missing = 0 if number == len(parts) - 1 else 1
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body) + missing, body)
                    )

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join()


def test_a_stream_that_is_cut_is_read_on_behind_its_last_event() -> None:
    half_an_event = event(2, "trial.started")[:9]
    parts = [event(1, "sweep.created") + half_an_event, event(2, "trial.started") + event(3, "sweep.finished")]
    with cutting(parts) as (address, asked), Remote(address) as client:
        assert [each.sequence for each in client.events("sw-cut")] == [1, 2, 3]
    assert asked == ["0", "1"]


def test_a_clients_own_connections_are_used_and_its_token_is_shown() -> None:
    shown: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers["Authorization"])
        return httpx.Response(200, json={"status": "ok"})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with Remote("http://autotuner.example", token="at_a_b", http=http) as client:
        client.health()
    assert shown == ["Bearer at_a_b"]


def _answering(content: bytes, **headers: str) -> Remote:
    """A client of whatever answers so in the place of the service."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=content))
    return Remote("http://elsewhere", http=httpx.Client(transport=transport))


def test_a_server_that_is_not_the_service_is_named() -> None:
    with pytest.raises(ServiceError, match=r"is not the service: '<html>log in'"):
        _answering(b"<html>log in").read_sweep("s")
    for streamed in (b"data: {}\n\n", b"id: x\nevent: a\ndata: {}\n\n", b"id: 1\nevent: a\ndata: [\n\n"):
        with pytest.raises(ServiceError, match="is not an event of a sweep"):
            list(_answering(streamed).events("s"))
