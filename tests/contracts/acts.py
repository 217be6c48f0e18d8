"""What a worker does to a store, in one line each."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.run import Finish, Lease, RunState, StopReason, Wish
from autotuner.core.sweep import ExpectedImprovement, RunTrial, Sweep, SweepResult
from autotuner.core.trial import Outcome, Trial
from autotuner.store.sql import Store
from tests.builders import cpu_layout, measurement, prediction, step_report, sweep_request

OWNER = "worker-a"
OTHER = "worker-b"
LEASE_S = 30.0


def claim_sweep(
    store: Store, *, owner: str, now: float, lease_s: float, lapsed: Collection[Lease] = ()
) -> Sweep | None:
    """The sweep that a worker of that name gets."""
    run = store.runs.claim(["sweep"], owner=owner, now=now, lease_s=lease_s, lapsed=lapsed)
    return None if run is None else store.get_sweep(run.id)


def held_sweeps(store: Store) -> list[Lease]:
    """The leases of all sweeps that somebody holds."""
    return list(store.runs.leases(["sweep"]))


def lease_of(store: Store, sweep_or_trial_id: str, owner: str = OWNER) -> Lease:
    """What a worker of that name would hold if the last claim of the sweep were its own."""
    sweep_id = "-".join(sweep_or_trial_id.split("-")[:2])
    for lease in held_sweeps(store):
        if lease.run_id == sweep_id:
            return replace(lease, owner=owner)
    return Lease(run_id=sweep_id, owner=owner, claim=0, renewals=0, lease_s=LEASE_S)


def renew_lease(store: Store, sweep_id: str, *, owner: str, now: float) -> Wish:
    """A sign of life."""
    wish: Wish = store.runs.renew(lease_of(store, sweep_id, owner), now=now)
    return wish


def release_sweep(store: Store, sweep_id: str, *, owner: str, now: float) -> None:
    """Give the sweep back."""
    store.runs.release(lease_of(store, sweep_id, owner), now=now)


def finish_sweep(
    store: Store,
    sweep_id: str,
    *,
    owner: str,
    now: float,
    state: RunState,
    reason: StopReason,
    detail: str,
    seen: int | None = None,
    expected_improvement: ExpectedImprovement | None = None,
) -> Sweep:
    """End the sweep, unless something else is asked of it by now than in that version of what is."""
    end = Finish(
        state=state, detail=detail, result=SweepResult(reason=reason, expected_improvement=expected_improvement)
    )
    store.runs.finish(lease_of(store, sweep_id, owner), end, now=now, seen=seen)
    return store.get_sweep(sweep_id)


def create(store: Store, *, now: float = 1.0, **changes: Any) -> Sweep:
    return store.create_sweep(sweep_request(**changes), now=now)[0]


def claim(store: Store, *, owner: str = OWNER, now: float = 10.0) -> Sweep:
    sweep = claim_sweep(store, owner=owner, now=now, lease_s=LEASE_S)
    assert sweep is not None
    return sweep


def take_over(store: Store, *, owner: str = OTHER, now: float = 50.0) -> Sweep | None:
    """A claim by somebody who has seen every worker stand still."""
    return claim_sweep(store, owner=owner, now=now, lease_s=LEASE_S, lapsed=held_sweeps(store))


def held_sweep(store: Store, **changes: Any) -> Sweep:
    """The only sweep of the store, held by ``OWNER``."""
    create(store, **changes)
    return claim(store)


def add(store: Store, sweep: Sweep, number: int = 0, **changes: Any) -> Trial:
    """A trial of a sweep that ``OWNER`` holds, queued."""
    asked: dict[str, Any] = {"layout": cpu_layout(), "prediction": prediction()} | changes
    return store.add_trial(RunTrial(number=number, **asked), lease=lease_of(store, sweep.id))


def start(store: Store, sweep: Sweep, number: int = 0, *, now: float = 11.0, **changes: Any) -> Trial:
    """The same, running."""
    return begin(store, add(store, sweep, number, **changes), now=now)


def begin(store: Store, trial: Trial, *, owner: str = OWNER, now: float = 11.0) -> Trial:
    """Set a queued trial running."""
    return store.start_trial(trial.id, lease=lease_of(store, trial.id, owner), now=now)


def step(store: Store, trial: Trial, number: int = 0, *, now: float = 12.0, **changes: Any) -> None:
    """A running trial has done that step."""
    store.add_step(trial.id, step_report(number, **changes), lease=lease_of(store, trial.id), now=now)


def end(store: Store, trial: Trial, outcome: Outcome, *, now: float = 12.0) -> Trial:
    return store.finish_trial(trial.id, outcome, lease=lease_of(store, trial.id), now=now)


def measure(store: Store, sweep: Sweep, number: int, *, mfu: float, **changes: Any) -> Trial:
    return end(store, start(store, sweep, number, **changes), measurement(mfu=mfu))


def judge(store: Store, trial: Trial, result: GateResult, *, now: float = 13.0) -> Trial:
    """The convergence gate of a complete trial has found that."""
    return store.add_gate(trial.id, result, lease=lease_of(store, trial.id), now=now)


def gate_result(outcome: GateOutcome = GateOutcome.PASSED, **changes: Any) -> GateResult:
    result = GateResult(
        outcome=outcome,
        detail="the candidate's loss differs by 0.1 %",
        reference=cpu_layout(),
        candidate_losses=((5.5, 5.4), (5.6, math.nan)),
        reference_losses=((5.5, 5.3), (5.6, 5.5)),
        tolerance=0.02,
    )
    return replace(result, **changes)


def finish(store: Store, sweep: Sweep, **changes: Any) -> Sweep:
    """End a sweep that ``OWNER`` holds."""
    asked: dict[str, Any] = {
        "owner": OWNER,
        "now": 20.0,
        "state": RunState.COMPLETE,
        "reason": StopReason.TRIAL_BUDGET,
        "detail": "4 of 4 trials ran",
    }
    return finish_sweep(store, sweep.id, **(asked | changes))
