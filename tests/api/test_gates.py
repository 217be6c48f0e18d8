"""MFU gates and baselines over REST."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.runs.gate import gate_kind
from autotuner.runs.worker import Worker
from autotuner.search.sweeps.instructions import RunTrial
from autotuner.store.sql import Store
from tests.api.bodies import GATE
from tests.api.service import NOW
from tests.builders import cpu_layout, measurement, prediction
from tests.clocks import ManualClock
from tests.contracts.acts import claim_sweep, finish_sweep, lease_of

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
