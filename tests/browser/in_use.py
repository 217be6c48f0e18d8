"""Retunes, MFU gates and deliveries for tests of pages, stored as services store them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import update

from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, EnvironmentChange, RunGroup
from autotuner.core.layout import Layout
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    MfuGateOutcome,
    MfuGateRequest,
    MfuGateResult,
    RetuneOutcome,
    RetuneRequest,
    RetuneRun,
    StepChange,
    Trigger,
    Verdict,
)
from autotuner.search.upkeep.cron import DueRun
from autotuner.store.engine import writing
from autotuner.store.tables import runs as queue
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_layout, prediction, sweep_request
from tests.runs import end_gate, end_retune

DAY_S = 86400.0
INCUMBENT = cpu_layout(tensor_parallel_degree=2)
CHANGE = EnvironmentChange(name="OMP_NUM_THREADS", then="2", now="1")


def runs(rate: float, at: float = NOW, *, simulated: bool = False) -> RunGroup:
    environment = {"simulated": "nothing ran"} if simulated else {}
    return RunGroup(rates=(0.998 * rate, rate, 1.002 * rate), mfu=rate / 4000, at=at, environment=environment)


def compared(rate: float) -> Comparison:
    change = rate / 1000 - 1
    return Comparison(
        decision=Decision.SLOWER if change < -0.02 else Decision.NOT_SLOWER,
        change=change,
        low=change - 0.008,
        high=change + 0.008,
        noise=0.002,
        num_reference=9,
        num_candidate=3,
    )


def found(rate: float, *, simulated: bool = False) -> ChallengeFindings:
    measured = runs(rate, simulated=simulated)
    return ChallengeFindings(measured=INCUMBENT, runs=measured, against_baseline=compared(rate))


# ---------------------------------------------------------------- retunes
def retune(driver: StoreDriver, name: str = "nightly", **changes: Any) -> None:
    """One of every night at two, due now."""
    request = RetuneRequest(name=name, cron="0 2 * * *", template=sweep_request(), incumbent=INCUMBENT)
    driver.store.retunes.save(replace(request, **changes), now=NOW, next_due_at=NOW)


def started_run(driver: StoreDriver, name: str = "nightly", night: int = 0) -> RetuneRun:
    """The run of a night, whose sweep is queued."""
    due_at = NOW + night * DAY_S
    due = DueRun(expected_due_at=due_at, due_at=due_at, next_due_at=due_at + DAY_S, trigger=Trigger.CRON)
    run = driver.store.retunes.start_run(name, due, now=due_at, sweep=sweep_request())
    assert run is not None
    return run


def finished_run(
    driver: StoreDriver, verdict: Verdict, rate: float | None, detail: str, name: str = "nightly", night: int = 0
) -> RetuneRun:
    """A run that ended so."""
    run = started_run(driver, name, night)
    is_slower, is_better, step = verdict is Verdict.REGRESSION, verdict is Verdict.BETTER_FOUND, prediction().step_time
    outcome = RetuneOutcome(
        verdict=verdict,
        findings=None if rate is None else replace(found(rate), challenger=cpu_layout() if is_better else None),
        changes=(CHANGE,) if is_slower else (),
        why=StepChange(predicted_before=step, predicted_after=step, relative_error=0.1) if is_better else None,
    )
    _free(driver, run.id)
    ended = end_retune(driver.store, run, outcome, detail, now=run.request.due_at + 60)
    if not is_slower:
        driver.store.retunes.set_incumbent(name, INCUMBENT, (runs(1000.0),))
    return ended


def _free(driver: StoreDriver, run_id: str) -> None:
    """Have a run await nothing, though its sweep stays in the queue."""
    with writing(driver.store._engine) as connection:  # no method does that
        connection.execute(update(queue).where(queue.c.id == run_id).values(awaits=None))


# ---------------------------------------------------------------- MFU gates
def queued_gate(
    driver: StoreDriver, software: str = "pull request 7", held_to: Layout | None = None, **changes: Any
) -> GateRun:
    """A gate held to the baseline main, whose sweep is queued."""
    request = MfuGateRequest(sweep=sweep_request(), layout=INCUMBENT, baseline="main", software=software)
    baseline = Baseline(
        name="main", key="k" * 64, layout=held_to or INCUMBENT, runs=(runs(1000.0),), gate_id="mg-0", at=NOW
    )
    asked = GateRunRequest(gate=replace(request, **changes), key="k" * 64, content=software, baseline=baseline)
    return driver.store.mfu_gates.create(asked, by=sweep_request(), now=NOW)


def finished_gate(driver: StoreDriver, outcome: MfuGateOutcome, rate: float, detail: str, **changes: Any) -> GateRun:
    """A gate that ended so, and what it measured is the baseline from now on if it passed."""
    is_passed = outcome is MfuGateOutcome.PASSED
    gate = queued_gate(driver, sets_baseline=is_passed, **changes)
    findings = found(rate, simulated=gate.request.gate.sweep.runs_on.engine == SIMULATED)
    result = MfuGateResult(outcome=outcome, findings=findings, changes=() if is_passed else (CHANGE,))
    _free(driver, gate.id)
    return end_gate(driver.store, gate, result, detail, now=NOW + 60)
