from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from autotuner.core import codec, documents
from autotuner.core.run import NewRun
from autotuner.runs.clock import Clock, SystemClock
from autotuner.search.planning.plan import PlanProgress, plan_id_of
from autotuner.search.planning.request import PlanRequest
from autotuner.service.plans import Plans
from autotuner.store.sql import Store
from tests.api.bodies import PLAN
from tests.api.service import app_on
from tests.clocks import ManualClock


def computed(client: httpx.Client, plan_id: str) -> dict[str, Any]:
    """The plan once it is computed; a busy machine may take longer than one request waits."""
    while True:
        found: dict[str, Any] = client.get(f"/runs/{plan_id}", params={"wait_s": 20}, timeout=60).json()
        if found["result"] is not None:
            return found


def test_the_same_question_is_the_same_plan_and_is_found_again(client: httpx.Client) -> None:
    first = client.post("/plans", json=PLAN)
    plan_id = first.json()["id"]
    assert first.headers["Location"].endswith(f"/runs/{plan_id}")
    found = computed(client, plan_id)
    again = client.post("/plans", json=PLAN)
    assert again.status_code == 200  # it was computed before
    assert again.json() == found


def test_a_plan_says_how_far_it_is(client: httpx.Client) -> None:
    response = client.post("/plans", json=PLAN | {"sizes": [8, 24, 40]})
    assert response.status_code == 202
    done = computed(client, response.json()["id"])
    assert done["result"]["num_compared"] == 3
    assert done["progress"]["num_done"] == done["progress"]["num_known"] > 0


# ---------------------------------------------------------------------- several processes on one store
SMALL = PLAN | {"sizes": [16]}


@pytest.fixture
def plans(store: Store) -> Iterator[Callable[[Clock], Plans]]:
    """Makes plans of another process on the store."""
    made: list[Plans] = []

    def make(clock: Clock) -> Plans:
        made.append(app_on(store, clock).plans)
        return made[-1]

    yield make
    for one in made:
        one.close()


def question(store: Store) -> PlanRequest:
    return app_on(store).resolve(documents.read(PlanRequest, SMALL))


def queued(store: Store, plan_id: str | None = None) -> str:
    """The id of a plan that was asked for a while ago."""
    request = question(store)
    new = NewRun(id=plan_id or plan_id_of(request), kind="plan", request=request, progress=PlanProgress())
    store.runs.add(new, now=1.0)
    return new.id


def test_a_process_waits_for_the_answer_that_another_process_computes(
    client: httpx.Client, store: Store, plans: Callable[[Clock], Plans]
) -> None:
    other = plans(SystemClock())
    plan_id = client.post("/plans", json=SMALL).json()["id"]
    found = other.read(plan_id, wait_s=50)
    assert codec.to_plain(found.result) == computed(client, plan_id)["result"]
    assert other.ask(question(store))[0].finished_at == found.finished_at  # nobody computes it again


def test_a_plan_whose_process_died_is_taken_over_by_whoever_reads_it(
    store: Store, plans: Callable[[Clock], Plans]
) -> None:
    clock, plan_id = ManualClock(), queued(store)
    assert store.runs.claim(["plan"], owner="dead", now=1.0, lease_s=10.0) is not None
    mine = plans(clock)
    while mine.read(plan_id, wait_s=0.1).result is None:
        clock.sleep(2.5)  # a quarter of the lease: as much as the time between two looks counts for


def test_a_plan_that_another_release_left_unanswered_is_not_found(client: httpx.Client, store: Store) -> None:
    queued(store, "0123456789abcdef")
    assert client.get("/runs/0123456789abcdef", params={"wait_s": 50}).status_code == 404


def test_an_error_is_shown_to_the_reader_of_the_plan_and_any_service_may_compute_it_again(
    client: httpx.Client, store: Store
) -> None:
    plan_id = client.post("/plans", json=SMALL | {"space": {"tensor_parallel_degree": [7]}}).json()["id"]
    told = client.get(f"/runs/{plan_id}", params={"wait_s": 50})
    assert told.status_code == 422
    assert "no layout that fits" in told.json()["detail"]
    assert store.runs.get("plan", plan_id).lease is None


def test_a_plan_beyond_those_that_are_computed_waits_until_somebody_reads_it_while_there_is_room(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("autotuner.service.plans._MOST_COMPUTING", 0)
        asked = client.post("/plans", json=SMALL)
        assert (asked.status_code, asked.json()["result"]) == (202, None)
        assert client.get(f"/runs/{asked.json()['id']}").json()["progress"]["num_known"] == 0
    assert computed(client, asked.json()["id"])["result"]["num_compared"] == 1
