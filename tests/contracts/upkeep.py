"""Retunes, performance regression gates and announcements as the store's contract needs them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from autotuner.core.announcement import Announcement, AnnouncementKind, Webhook
from autotuner.core.comparison import Challenge, ChallengeFindings, EnvironmentChange, RunGroup
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    RegressionGateOutcome,
    RegressionGateRequest,
    RegressionGateResult,
    Retune,
    RetuneOutcome,
    RetuneRequest,
    RetuneRun,
    Trigger,
    Verdict,
)
from autotuner.search.upkeep.cron import DueRun
from autotuner.store.sql import Store
from tests.builders import cpu_layout, sweep_request
from tests.contracts.acts import LEASE_S, OWNER, claim_sweep, finish_sweep

DUE_AT = 100.0
NEXT_DUE_AT = 200.0


def run_group(*rates: float, at: float = 50.0) -> RunGroup:
    return RunGroup(rates=rates or (1000.0, 1010.0), mfu=0.25, at=at, environment={"torch": "2.9.1"})


def announcement(subject_id: str = "rt-x", **changes: Any) -> Announcement:
    told = Announcement(
        id=f"an-{subject_id}",
        at=20.0,
        kind=AnnouncementKind.RETUNE_REGRESSION,
        title="nightly: regression",
        text="lost 10 %",
        path="retunes/nightly",
        subject_id=subject_id,
        facts={"change": -0.1, "verdict": "regression"},
    )
    return replace(told, **changes)


def webhook(name: str = "team", **changes: Any) -> Webhook:
    return replace(Webhook(name=name, url="https://hooks.example.org/x", secret="whsec_x", created_at=1.0), **changes)


# ---------------------------------------------------------------------- retunes
def challenge_request() -> SweepRequest:
    return sweep_request(challenge=Challenge(incumbent=cpu_layout(), baseline=(run_group(),)))


def retune_request(name: str = "nightly", **changes: Any) -> RetuneRequest:
    asked = RetuneRequest(name=name, cron="0 3 * * *", time_zone="Europe/Berlin", template=sweep_request())
    return replace(asked, **changes)


def saved_retune(store: Store, name: str = "nightly", *, due_at: float | None = DUE_AT, **changes: Any) -> Retune:
    return store.retunes.save(retune_request(name, **changes), now=1.0, next_due_at=due_at)


def start_run(store: Store, name: str = "nightly", **changes: Any) -> RetuneRun | None:
    """The run of ``DUE_AT``, as a scheduler starts it."""
    due = DueRun(expected_due_at=DUE_AT, due_at=DUE_AT, next_due_at=NEXT_DUE_AT, trigger=Trigger.CRON)
    of_due = {one.name: changes.pop(one.name) for one in fields(DueRun) if one.name in changes}
    asked: dict[str, Any] = {"now": 101.0, "sweep": challenge_request()}
    return store.retunes.start_run(name, replace(due, **of_due), **(asked | changes))


def started_run(store: Store, name: str = "nightly", **changes: Any) -> RetuneRun:
    run = start_run(store, name, **changes)
    assert run is not None
    return run


def outcome(verdict: Verdict = Verdict.REGRESSION, **changes: Any) -> RetuneOutcome:
    found = RetuneOutcome(
        verdict=verdict,
        findings=ChallengeFindings(measured=cpu_layout(), runs=run_group()),
        since=50.0,
        changes=(EnvironmentChange(name="torch", then="2.9.1", now="2.10.0"),),
    )
    return replace(found, **changes)


# ---------------------------------------------------------------------- Performance regression gates
def regression_gate_request(**changes: Any) -> RegressionGateRequest:
    return replace(RegressionGateRequest(sweep=sweep_request(), layout=cpu_layout(), baseline="main"), **changes)


def baseline(name: str = "main", *, key: str = "job", at: float = 30.0) -> Baseline:
    return Baseline(name=name, key=key, layout=cpu_layout(), runs=(run_group(),), gate_id="mg-x", at=at)


def asked_gate(
    store: Store, *, now: float = 10.0, request: RegressionGateRequest | None = None, **changes: Any
) -> GateRun:
    how: dict[str, Any] = {name: changes.pop(name) for name in ("by", "caller") if name in changes}
    held = GateRunRequest(gate=request or regression_gate_request(), key="job", content="content")
    return store.regression_gates.create(replace(held, **changes), now=now, **{"by": challenge_request(), **how})


def gate_result(kind: RegressionGateOutcome = RegressionGateOutcome.PASSED, **changes: Any) -> RegressionGateResult:
    findings = ChallengeFindings(measured=cpu_layout(), runs=run_group())
    return replace(RegressionGateResult(outcome=kind, findings=findings), **changes)


# ---------------------------------------------------------------------- their sweeps
def end_sweep(store: Store, sweep_id: str | None, *, now: float = 120.0) -> Sweep:
    """Claim what waits until it is that sweep, and finish it."""
    assert sweep_id is not None
    while (sweep := claim_sweep(store, owner=OWNER, now=now - 1, lease_s=LEASE_S)) is not None:
        if sweep.id == sweep_id:
            break
    reason, detail = StopReason.SPACE_EXHAUSTED, "every layout was tried"
    return finish_sweep(store, sweep_id, owner=OWNER, now=now, state=RunState.COMPLETE, reason=reason, detail=detail)
