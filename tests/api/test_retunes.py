"""Retunes over REST: stored, listed, run, adopted, forgotten."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.core.upkeep import RetuneOutcome, Verdict
from autotuner.store.sql import Store
from tests.api.service import NOW
from tests.runs import conclude_retune
from tests.unit.search.upkeep.builders import BETTER, CHALLENGER, INCUMBENT, SLOWER, runs

SWEEP = {
    "model": "gpt-3-125m",
    "cluster": "h100:2",
    "workload": {"seq_len": 256, "global_batch_size": 8},
    "space": {"precision": ["bf16"], "attention_kernel": ["flash"]},
}
NIGHTLY: dict[str, Any] = {"name": "nightly", "cron": "0  2 * * *", "time_zone": "Europe/Berlin", "sweep": SWEEP}
LAYOUT = {"data_parallel_replicate_degree": 2, "precision": "bf16", "attention_kernel": "flash"}


@pytest.fixture
def nightly(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/retunes", json=NIGHTLY | {"incumbent": LAYOUT})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/retunes/nightly"
    return dict(answer.json())


def conclude(store: Store, run: dict[str, Any], outcome: RetuneOutcome) -> None:
    conclude_retune(store, store.retunes.get_run(run["id"]), outcome, now=NOW + 60)
    store.retunes.set_incumbent("nightly", INCUMBENT, (runs(),))


def test_a_retune_is_stored_with_what_it_leaves_out_and_due_at_the_next_due_time(nightly: dict[str, Any]) -> None:
    assert (nightly["cron"], nightly["cron_in_words"]) == ("0 2 * * *", "At 02:00 every day")
    assert nightly["next_due_at"] == 1_760_054_400.0  # 2025-10-10 02:00 in Berlin; it is stored on the ninth, 10:53
    assert nightly["incumbent"]["data_parallel_replicate_degree"] == 2
    assert (nightly["measured_tokens_per_s"], nightly["last_run"], nightly["is_paused"]) == (None, None, False)
    assert nightly["request"]["test"]["loss"] == 0.05
    assert nightly["request"]["template"]["job"]["model"]["name"] == "gpt-3-125m"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cron": "0 25 * * *"}, "cron"),
        ({"time_zone": "Europe/Berlni"}, "time_zone"),
        ({"sweep": SWEEP | {"cluster": "h1000:2"}}, None),
        ({"sweep": SWEEP | {"space": {"tensor_parallel_degree": [64]}}}, "sweep.space"),
        ({"sweep": SWEEP | {"cluster": "cpu:4", "trial_cluster": "cpu:2"}}, "sweep.trial_cluster"),
        ({"incumbent": LAYOUT | {"tensor_parallel_degree": 3}}, "incumbent.data_parallel"),
        ({"incumbent": None, "searches": False}, "searches"),
        ({"test": {"tolerance": 0.1}}, "test.tolerance"),
        ({"nmae": "x"}, None),
    ],
)
def test_what_cannot_run_is_refused_where_it_stands(
    client: httpx.Client, changes: dict[str, Any], field: str | None
) -> None:
    answer = client.post("/retunes", json=NIGHTLY | {"incumbent": LAYOUT} | changes)
    assert answer.status_code in (404, 422), answer.text
    assert field is None or answer.json()["field"].startswith(field)
    assert client.get("/retunes").json() == {"items": []}


@pytest.mark.usefixtures("nightly")
def test_a_name_is_taken_once(client: httpx.Client) -> None:
    assert client.post("/retunes", json=NIGHTLY).status_code == 409


@pytest.mark.usefixtures("nightly")
def test_an_outcome_is_read_with_its_findings_and_stands_in_the_trend(client: httpx.Client, store: Store) -> None:
    run = client.post("/retunes/nightly/runs").json()
    conclude(store, run, RetuneOutcome(verdict=Verdict.REGRESSION, detail="the incumbent lost 7 %", findings=SLOWER))
    read = client.get(f"/retune-runs/{run['id']}").json()
    assert (read["state"], read["outcome"]["verdict"]) == ("finished", "regression")
    assert client.get("/retunes/nightly/runs").json()["items"] == [read]
    (point,) = client.get("/retunes/nightly/trend").json()["items"]
    assert (point["run_id"], point["verdict"], point["tokens_per_s"]) == (run["id"], "regression", 930.0)
    assert point["tokens_per_s"] < point["band_low"] < point["reference"] < point["band_high"]
    shown = client.get("/retunes/nightly").json()
    assert (shown["last_run"]["id"], shown["measured_tokens_per_s"], shown["num_baseline_runs"]) == (
        run["id"],
        1000.0,
        1,
    )


@pytest.mark.usefixtures("nightly")
def test_a_better_layout_is_adopted_by_its_finding_and_another_by_its_name(client: httpx.Client, store: Store) -> None:
    assert client.post("/retunes/nightly/adopt", json={}).status_code == 409
    run = client.post("/retunes/nightly/runs").json()
    conclude(store, run, RetuneOutcome(verdict=Verdict.BETTER_FOUND, detail="10 % faster", findings=BETTER))
    adopted = client.post("/retunes/nightly/adopt", json={}).json()
    assert adopted["incumbent"] == to_plain(CHALLENGER)
    assert adopted["measured_tokens_per_s"] == 1100.0
    named = client.post("/retunes/nightly/adopt", json={"layout": LAYOUT}).json()
    assert (named["incumbent"]["precision"], named["num_baseline_runs"]) == ("bf16", 0)
    refused = client.post("/retunes/nightly/adopt", json={"layout": LAYOUT | {"tensor_parallel_degree": 3}})
    assert (refused.status_code, refused.json()["field"]) == (422, "layout.data_parallel_replicate_degree")


@pytest.mark.usefixtures("nightly")
def test_a_retune_is_forgotten_with_its_runs_and_its_sweeps_stay(client: httpx.Client, store: Store) -> None:
    run = client.post("/retunes/nightly/runs").json()
    outcome = RetuneOutcome(verdict=Verdict.UNCHANGED, detail="", findings=BETTER)
    conclude(store, run, outcome)
    assert client.delete("/retunes/nightly").json()["name"] == "nightly"
    assert client.get(f"/retune-runs/{run['id']}").status_code == 404
    assert client.get(f"/sweeps/{run['sweep_id']}").status_code == 200


@pytest.mark.parametrize("path", ["/retunes/nihgtly", "/retunes/nihgtly/runs", "/retunes/nihgtly/trend"])
@pytest.mark.usefixtures("nightly")
def test_a_name_that_is_not_stored_is_told_the_nearest(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["nearest"]) == (404, "nightly")
