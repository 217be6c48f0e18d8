"""Durable runs as tests take and end them, in the place of a worker."""

from __future__ import annotations

from typing import Any

from autotuner.core.run import Finish, Lease, Run, RunState
from autotuner.core.upkeep import GateRun, RegressionGateResult, RetuneOutcome, RetuneRun
from autotuner.search.upkeep import gate as gates
from autotuner.search.upkeep import retune as retunes
from autotuner.store.sql import Store


def claimed(store: Store, kind: str, *, now: float = 21.0, owner: str = "worker") -> Run:
    """The run that is due longest, claimed."""
    run: Run | None = store.runs.claim([kind], owner=owner, now=now, lease_s=10.0)
    assert run is not None
    return run


def lease_of(run: Run) -> Lease:
    """The lease of a claimed run."""
    assert run.lease is not None
    return run.lease


def report(store: Store, run: Run, progress: Any) -> None:
    """Say how far a claimed run is."""
    store.runs.renew(lease_of(run), progress, now=21.0)


def end(store: Store, run: Run, state: RunState, detail: str = "", *, now: float = 22.0, result: Any = None) -> None:
    """End a claimed run."""
    store.runs.finish(lease_of(run), Finish(state=state, detail=detail, result=result), now=now)


def conclude_gate(
    store: Store, gate: GateRun, result: RegressionGateResult, detail: str = "", *, now: float = 30.0
) -> GateRun:
    """Cancel the queued sweep of a gate, and end the gate as if it had measured that."""
    assert gate.child_id is not None
    store.request_cancel(gate.child_id, now=now)
    return end_gate(store, gate, result, detail, now=now)


def end_gate(store: Store, gate: GateRun, result: RegressionGateResult, detail: str = "", *, now: float) -> GateRun:
    """End the only gate that awaits no sweep any more."""
    run = claimed(store, "gate", now=now)
    assert run.id == gate.id
    store.runs.finish(lease_of(run), gates.end_of(result, detail), now=now)
    return store.runs.get(GateRun, gate.id)


def conclude_retune(store: Store, run: RetuneRun, outcome: RetuneOutcome, detail: str = "", *, now: float) -> RetuneRun:
    """Cancel the queued sweep of a run of a retune, and end the run as if it had found that."""
    if run.child_id is not None:
        store.request_cancel(run.child_id, now=now)
    return end_retune(store, run, outcome, detail, now=now)


def end_retune(store: Store, run: RetuneRun, outcome: RetuneOutcome, detail: str = "", *, now: float) -> RetuneRun:
    """End the only run of a retune that awaits no sweep any more."""
    free = claimed(store, "retune", now=now)
    assert free.id == run.id
    store.runs.finish(lease_of(free), retunes.end_of(outcome, detail), now=now)
    return store.runs.get(RetuneRun, run.id)


def give_up_delivery(store: Store, delivery_id: str, detail: str, *, now: float) -> None:
    """End a queued delivery that nobody accepted."""
    taken = []
    while (run := claimed(store, "delivery", now=1e12)).id != delivery_id:
        taken.append(run)
    end(store, run, RunState.FAILED, detail, now=now)
    for other in taken:
        store.runs.release(lease_of(other), now=now, due_at=other.due_at)
