"""Durable runs as tests take and end them, in the place of a worker."""

from __future__ import annotations

from typing import Any

from autotuner.core.run import Finish, Lease, Run, RunState
from autotuner.ports import Store


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


def give_up_delivery(store: Store, delivery_id: str, detail: str, *, now: float) -> None:
    """End a queued delivery that nobody accepted."""
    taken = []
    while (run := claimed(store, "delivery", now=1e12)).id != delivery_id:
        taken.append(run)
    end(store, run, RunState.FAILED, detail, now=now)
    for other in taken:
        store.runs.release(lease_of(other), now=now, due_at=other.due_at)
