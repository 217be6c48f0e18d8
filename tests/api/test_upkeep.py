"""Performance regression gates, baselines and retunes over REST and on pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import RunTrial
from autotuner.core.upkeep import RetuneOutcome, RetuneRun, Verdict
from autotuner.runs.gate_run import gate_kind
from autotuner.runs.worker import Worker
from autotuner.store.sql import Store
from tests.api.bodies import GATE, NIGHTLY, TWO_REPLICAS
from tests.api.service import NOW, StoreDriver
from tests.browser.stores import queued_gate, retune
from tests.builders import cpu_cluster, cpu_layout, measurement, prediction
from tests.clocks import ManualClock
from tests.contracts.acts import claim_sweep, finish_sweep, lease_of
from tests.runs import conclude_retune
from tests.studies import study_request
from tests.unit.search.upkeep.builders import BETTER, CHALLENGER, INCUMBENT, runs

# ---------------------------------------------------------------- gates
LAYOUT = cpu_layout(data_parallel_replicate_degree=2)


def ask(client: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = client.post("/gates", json=GATE | changes)
    assert answer.status_code == 201, answer.text
    gate: dict[str, Any] = answer.json()
    return gate


def run(store: Store, rates: tuple[float, ...], *, cancels: str | None = None, **measured: Any) -> None:
    """What a worker does with the only sweep that is queued, and then with its gate, which may be cancelled between."""
    sweep = claim_sweep(store, owner="a", now=NOW, lease_s=60.0)
    assert sweep is not None
    for number, rate in enumerate(rates):
        repeats = 0 if number else None
        trial = store.add_trial(
            RunTrial(
                number=number,
                layout=LAYOUT,
                prediction=prediction(),
                repeats=repeats,
            ),
            lease=lease_of(store, sweep.id, "a"),
        )
        store.start_trial(trial.id, lease=lease_of(store, trial.id, "a"), now=NOW)
        store.finish_trial(trial.id, reached(rate, **measured), lease=lease_of(store, trial.id, "a"), now=NOW + number)
    end = {"state": RunState.COMPLETE, "reason": StopReason.SPACE_EXHAUSTED, "detail": "compared"}
    finish_sweep(store, sweep.id, owner="a", now=NOW + 60, **end)  # type: ignore[arg-type]  # as named
    if cancels is not None:
        store.runs.cancel("gate", cancels, "too late", now=NOW + 60)
    assert conclude(store)


def conclude(store: Store) -> bool:
    """Decide the one gate whose sweep has ended, if there is one."""
    clock, kind = ManualClock(NOW + 61), gate_kind(store)
    return Worker(store.runs, {kind.name: kind}, clock, owner="b", lease_s=60.0, shutdown=Event()).run_once()


def reached(rate: float, **changes: Any) -> Measurement:
    return measurement(tokens_per_s=rate, step_time_s=512 / rate, **changes)


def with_baseline(client: httpx.Client, store: Store) -> dict[str, Any]:
    """The gate of a branch that has set its baseline."""
    gate = ask(client, sets_baseline=True)
    run(store, (1000.0, 1001.0, 999.0, 1000.5))
    return read(client, gate)


def read(client: httpx.Client, gate: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"/runs/{gate['id']}").json()
    return answer


def test_runs_of_the_same_content_are_taken_again_and_finish_a_gate_at_once(client: httpx.Client, store: Store) -> None:
    first = with_baseline(client, store)
    again = ask(client)
    assert (again["outcome"], again["result"]["reused_from"], again["child_id"]) == ("passed", first["id"], None)
    assert client.get("/sweeps").json()["total"] == 1


@pytest.mark.parametrize(
    "changes",
    [{"software": "commit 2"}, {"reuses": False}, {"layout": to_plain(replace(LAYOUT, micro_batch_size=2))}],
    ids=["software", "asked not to", "layout"],
)
def test_runs_of_another_content_are_not(client: httpx.Client, store: Store, changes: dict[str, Any]) -> None:
    with_baseline(client, store)
    assert ask(client, **changes)["outcome"] is None


def test_the_badge_of_a_branch_is_that_of_its_last_finished_gate(client: httpx.Client, store: Store) -> None:
    assert client.get("/badges/main").status_code == 404
    with_baseline(client, store)
    ask(client, software="a pull request")
    assert "25.0 %" in client.get("/badges/main").text


def test_a_baseline_is_forgotten_so_that_the_next_begins_anew(client: httpx.Client, store: Store) -> None:
    with_baseline(client, store)
    (baseline,) = client.get("/baselines").json()["items"]
    path = f"/baselines/main/{baseline['key']}"
    assert client.delete(path).json() == baseline
    assert client.delete(path).status_code == 404
    assert ask(client)["request"]["baseline"] is None


def test_a_cancel_that_comes_after_the_last_run_changes_nothing(client: httpx.Client, store: Store) -> None:
    gate = ask(client, sets_baseline=True)
    run(store, (1000.0, 1001.0, 999.0), cancels=gate["id"])
    assert read(client, gate)["outcome"] == "no_baseline"


# ---------------------------------------------------------------- retunes
@pytest.fixture
def nightly(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/retunes", json=NIGHTLY)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/retunes/nightly"
    return dict(answer.json())


def conclude_run(store: Store, run: dict[str, Any], outcome: RetuneOutcome) -> None:
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
    conclude_run(store, run, RetuneOutcome(verdict=Verdict.BETTER_FOUND, findings=BETTER))
    adopted = client.post("/retunes/nightly/adopt", json={}).json()
    assert adopted["incumbent"] == to_plain(CHALLENGER)
    assert adopted["measured_tokens_per_s"] == 1100.0
    named = client.post("/retunes/nightly/adopt", json={"layout": TWO_REPLICAS}).json()
    assert (named["incumbent"]["precision"], named["baseline"]) == ("bf16", [])
    refused = client.post("/retunes/nightly/adopt", json={"layout": TWO_REPLICAS | {"tensor_parallel_degree": 3}})
    assert (refused.status_code, refused.json()["field"]) == (422, "layout.data_parallel_replicate_degree")


@pytest.mark.parametrize("path", ["/retunes/nihgtly", "/retunes/nihgtly/trend"])
@pytest.mark.usefixtures("nightly")
def test_an_unknown_name_gets_the_nearest_stored_one(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["nearest"]) == (404, "nightly")


# ---------------------------------------------------------------- upkeep
def queued_study(driver: StoreDriver) -> str:
    return driver.store.optimizer_studies.create(study_request(), now=NOW)[0].id


def gate_path(driver: StoreDriver) -> str:
    return f"/gates/{queued_gate(driver).id}"


def study_path(driver: StoreDriver) -> str:
    return f"/optimizer-studies/{queued_study(driver)}"


@pytest.mark.parametrize("path_of", [gate_path, study_path])
def test_an_unfinished_run_has_a_button_that_cancels_it(
    browser: httpx.Client, driver: StoreDriver, path_of: Callable[[StoreDriver], str]
) -> None:
    path = path_of(driver)
    assert f'action="{path}/cancel"' in browser.get(path).text
    answer = browser.post(f"{path}/cancel")
    assert (answer.status_code, answer.headers["Location"]) == (303, path)
    kind = "sweep" if "gates" in path else "study"  # a gate ends with its sweep
    (run,), _ = driver.store.runs.list(kind)
    assert run.state is RunState.CANCELLED


def test_a_retune_is_paused_resumed_and_run_by_hand(browser: httpx.Client, driver: StoreDriver, store: Store) -> None:
    retune(driver)
    assert browser.post("/retunes/nightly/pause").status_code == 303
    assert store.retunes.get("nightly").is_paused
    assert 'action="/retunes/nightly/resume"' in browser.get("/retunes/nightly").text
    assert browser.post("/retunes/nightly/resume").status_code == 303
    assert not store.retunes.get("nightly").is_paused
    assert browser.post("/retunes/nightly/run").status_code == 303
    assert len(store.retunes.runs("nightly")[0]) == 1


def test_a_cluster_is_checked_and_its_check_cancelled(browser: httpx.Client, store: Store) -> None:
    store.descriptions.save(replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two"))
    assert 'action="/clusters/pair/check"' in browser.get("/clusters/pair").text
    asked = browser.post("/clusters/pair/check")
    assert (asked.status_code, asked.headers["Location"]) == (303, "/clusters/pair")
    assert 'action="/clusters/pair/cancel"' in browser.get("/clusters/pair").text
    assert browser.post("/clusters/pair/cancel").status_code == 303
    (check,), _ = store.runs.list("check", subject="pair")
    assert check.state is RunState.CANCELLED


def test_a_cluster_without_an_engine_has_no_button(browser: httpx.Client, store: Store) -> None:
    store.descriptions.save(replace(cpu_cluster(2), name="here"))
    assert "Check now" not in browser.get("/clusters/here").text
