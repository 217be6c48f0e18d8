"""What a worker does to a store, in one line each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.run import StopReason, SweepState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Outcome, Trial
from autotuner.ports import Store
from tests.builders import cpu_layout, measurement, prediction, sweep_request

OWNER = "worker-a"
OTHER = "worker-b"
LEASE_S = 30.0


def create(store: Store, *, now: float = 1.0, **changes: Any) -> Sweep:
    return store.create_sweep(sweep_request(**changes), now=now)[0]


def claim(store: Store, *, owner: str = OWNER, now: float = 10.0) -> Sweep:
    sweep = store.claim_sweep(owner=owner, now=now, lease_s=LEASE_S)
    assert sweep is not None
    return sweep


def take_over(store: Store, *, owner: str = OTHER, now: float = 50.0) -> Sweep | None:
    """A claim by somebody who has seen every worker stand still."""
    return store.claim_sweep(owner=owner, now=now, lease_s=LEASE_S, lapsed=store.held_sweeps())


def held_sweep(store: Store, **changes: Any) -> Sweep:
    """The only sweep of the store, held by ``OWNER``."""
    create(store, **changes)
    return claim(store)


def add(store: Store, sweep: Sweep, number: int = 0, *, layout: Layout | None = None) -> Trial:
    return store.add_trial(sweep.id, owner=OWNER, number=number, layout=layout or cpu_layout(), prediction=prediction())


def start(store: Store, sweep: Sweep, number: int = 0, *, layout: Layout | None = None) -> Trial:
    return store.start_trial(add(store, sweep, number, layout=layout).id, owner=OWNER, now=11.0)


def end(store: Store, trial: Trial, outcome: Outcome) -> Trial:
    return store.finish_trial(trial.id, outcome, owner=OWNER, now=12.0)


def measure(store: Store, sweep: Sweep, number: int, *, mfu: float, layout: Layout | None = None) -> Trial:
    return end(store, start(store, sweep, number, layout=layout), measurement(mfu=mfu))


def gate_result(outcome: GateOutcome = GateOutcome.PASSED, **changes: Any) -> GateResult:
    result = GateResult(
        outcome=outcome,
        detail="the loss is 0.1 % from the reference's",
        reference=cpu_layout(),
        candidate_losses=((5.5, 5.4), (5.6, math.nan)),
        reference_losses=((5.5, 5.3), (5.6, 5.5)),
        tolerance=0.02,
    )
    return replace(result, **changes)


def finish(store: Store, sweep: Sweep, *, now: float = 20.0) -> Sweep:
    return store.finish_sweep(
        sweep.id,
        owner=OWNER,
        now=now,
        state=SweepState.COMPLETE,
        reason=StopReason.TRIAL_BUDGET,
        detail="4 of 4 trials ran",
    )
