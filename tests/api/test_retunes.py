"""Retunes over REST: stored, listed, run, adopted, forgotten."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.core.upkeep import RetuneOutcome, RetuneRun, Verdict
from autotuner.store.sql import Store
from tests.api.bodies import NIGHTLY, TWO_REPLICAS
from tests.api.service import NOW
from tests.runs import conclude_retune
from tests.unit.search.upkeep.builders import BETTER, CHALLENGER, INCUMBENT, runs


@pytest.fixture
def nightly(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/retunes", json=NIGHTLY)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/retunes/nightly"
    return dict(answer.json())


def conclude(store: Store, run: dict[str, Any], outcome: RetuneOutcome) -> None:
    conclude_retune(store, store.runs.get(RetuneRun, run["id"]), outcome, now=NOW + 60)
    store.retunes.set_incumbent("nightly", INCUMBENT, (runs(),))


def test_a_retune_is_stored_with_what_it_leaves_out_and_due_at_the_next_due_time(nightly: dict[str, Any]) -> None:
    assert (nightly["name"], nightly["request"]["cron"]) == ("nightly", "0 2 * * *")
    assert nightly["next_due_at"] == 1_760_054_400.0  # 2025-10-10 02:00 in Berlin; it is stored on the ninth, 10:53
    assert nightly["incumbent"]["data_parallel_replicate_degree"] == 2
    assert (nightly["measured_tokens_per_s"], nightly["last_run"], nightly["is_paused"]) == (None, None, False)
    assert nightly["request"]["test"]["loss"] == 0.05
    assert nightly["request"]["template"]["job"]["model"]["name"] == "gpt-3-125m"


@pytest.mark.usefixtures("nightly")
def test_a_name_is_taken_once(client: httpx.Client) -> None:
    assert client.post("/retunes", json=NIGHTLY).status_code == 409


@pytest.mark.usefixtures("nightly")
def test_a_better_layout_is_adopted_by_its_finding_and_another_by_its_name(client: httpx.Client, store: Store) -> None:
    assert client.post("/retunes/nightly/adopt", json={}).status_code == 409
    run = client.post("/retunes/nightly/runs").json()
    conclude(store, run, RetuneOutcome(verdict=Verdict.BETTER_FOUND, findings=BETTER))
    adopted = client.post("/retunes/nightly/adopt", json={}).json()
    assert adopted["incumbent"] == to_plain(CHALLENGER)
    assert adopted["measured_tokens_per_s"] == 1100.0
    named = client.post("/retunes/nightly/adopt", json={"layout": TWO_REPLICAS}).json()
    assert (named["incumbent"]["precision"], named["baseline"]) == ("bf16", [])
    refused = client.post("/retunes/nightly/adopt", json={"layout": TWO_REPLICAS | {"tensor_parallel_degree": 3}})
    assert (refused.status_code, refused.json()["field"]) == (422, "layout.data_parallel_replicate_degree")


@pytest.mark.parametrize("path", ["/retunes/nihgtly", "/retunes/nihgtly/trend"])
@pytest.mark.usefixtures("nightly")
def test_a_name_that_is_not_stored_is_told_the_nearest(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["nearest"]) == (404, "nightly")
