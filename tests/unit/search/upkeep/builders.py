"""Retunes, and what their runs measured, for tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotuner.core.comparison import Challenge, ChallengeFindings, Comparison, Decision, RunGroup
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Sweep
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    RegressionGateOutcome,
    RegressionGateRequest,
    RegressionGateResult,
    Retune,
    RetuneRequest,
    RetuneRun,
    RetuneRunRequest,
    Trigger,
)
from tests.builders import cpu_layout, sweep_request

INCUMBENT = cpu_layout(data_parallel_replicate_degree=2)

NIGHT = datetime(2026, 3, 2, 2, tzinfo=UTC).timestamp()
"""A Monday, two o'clock."""


def retune(**changes: Any) -> Retune:
    """Every night at two, with one run behind it; changes are of the retune, or of its request."""
    asked = {name: changes.pop(name) for name in ("cron", "time_zone", "adopts", "test") if name in changes}
    request = replace(RetuneRequest(name="nightly", cron="0 2 * * *", template=sweep_request()), **asked)
    value = Retune(request=request, created_at=0.0, incumbent=INCUMBENT, baseline=(runs(),), next_due_at=NIGHT)
    return replace(value, **changes)


def runs(rate: float = 1000.0, *, at: float = NIGHT - 86400, **changes: Any) -> RunGroup:
    return replace(RunGroup(rates=(rate, rate), mfu=0.25, at=at, environment={"torch": "2.12", "host": "a"}), **changes)


def comparison(decision: Decision = Decision.NOT_SLOWER, change: float = 0.001, **changes: Any) -> Comparison:
    value = Comparison(
        decision=decision,
        change=change,
        low=change - 0.01,
        high=change + 0.01,
        noise=0.004,
        num_reference=4,
        num_candidate=3,
    )
    return replace(value, **changes)


def findings(**changes: Any) -> ChallengeFindings:
    """The incumbent ran as it did."""
    value = ChallengeFindings(measured=INCUMBENT, runs=runs(at=NIGHT), against_baseline=comparison())
    return replace(value, **changes)


CHALLENGER = cpu_layout(tensor_parallel_degree=2)

SLOWER = findings(
    runs=runs(930.0, at=NIGHT, environment={"torch": "2.13", "host": "a"}),
    against_baseline=comparison(Decision.SLOWER, -0.07),
)

BETTER = findings(challenger=CHALLENGER, challenger_runs=runs(1100.0), gain=comparison(change=0.1), is_better=True)


def ended(state: RunState = RunState.COMPLETE, detail: str = "tried all") -> Sweep:
    """The sweep of a run, with what the retune was held to when it began."""
    return Sweep(
        id="sw-1",
        request=sweep_request(challenge=Challenge(incumbent=INCUMBENT, baseline=(runs(),))),
        state=state,
        created_at=NIGHT,
        finished_at=NIGHT + 60,
        stop_reason=StopReason.SPACE_EXHAUSTED,
        stop_detail=detail,
    )


# ---------------------------------------------------------------- gates
def baseline(**changes: Any) -> Baseline:
    value = Baseline(name="main", key="a-key", layout=INCUMBENT, runs=(runs(),), gate_id="ga-before", at=1.0)
    return replace(value, **changes)


def gate_request(**changes: Any) -> RegressionGateRequest:
    return replace(RegressionGateRequest(sweep=sweep_request(), layout=INCUMBENT, baseline="main"), **changes)


def gate(**changes: Any) -> GateRun:
    """One that runs; changes are of the gate, of what was asked, or of the request of its caller."""
    asked = {name: changes.pop(name) for name in ("layout", "sets_baseline", "software", "test") if name in changes}
    held = changes.pop("baseline", baseline())
    value = GateRun(
        id="ga-1",
        state=RunState.QUEUED,
        subject="main",
        created_by="",
        created_at=1000.0,
        due_at=1000.0,
        request=GateRunRequest(gate=gate_request(**asked), key="a-key", content="a-content", baseline=held),
        child_id="sw-1",
    )
    return replace(value, **changes)


def retune_run(**changes: Any) -> RetuneRun:
    """A run of that night; changes are of the run, or of its request."""
    asked = {name: changes.pop(name) for name in ("due_at", "is_skipped") if name in changes}
    request = replace(RetuneRunRequest(due_at=NIGHT, trigger=Trigger.CRON, started_at=NIGHT), **asked)
    value = RetuneRun(
        id="rr-1",
        state=RunState.COMPLETE,
        subject="nightly",
        created_by="",
        created_at=NIGHT,
        due_at=0.0,
        request=request,
    )
    return replace(value, **changes)


def measured(outcome: RegressionGateOutcome = RegressionGateOutcome.PASSED, **changes: Any) -> RegressionGateResult:
    return replace(RegressionGateResult(outcome=outcome, findings=findings()), **changes)
