"""New sweeps, whoever asks for them: held to the caller's quota and stored in the transaction that asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import NewRun, RunState
from autotuner.core.sweep import Budget, Demand, Sweep, SweepRequest
from autotuner.store import access, records, statements, transitions
from autotuner.store.identity import new_sweep_id
from autotuner.store.runs import insert_run
from autotuner.store.tables import runs
from autotuner.store.tables.columns import read_document


def create_sweep(
    connection: Connection,
    request: SweepRequest,
    now: float,
    *,
    caller: Caller,
    idempotency_key: str | None,
    new_id: Callable[[], str],
) -> tuple[Sweep, bool]:
    """A new sweep and True, or the one that the caller's key made before, whatever the quota says now, and False."""
    access.lock_caller(connection, caller)
    if found := find_created(connection, request, caller, idempotency_key):
        return found, False
    key = key_of_caller(caller, idempotency_key)
    return queue_sweep(connection, request, now, caller=caller, idempotency_key=key, new_id=new_id), True


def find_created(
    connection: Connection, request: SweepRequest, caller: Caller, idempotency_key: str | None
) -> Sweep | None:
    """The sweep that the caller's key made of this request; ``Conflict`` where it was made of another."""
    if idempotency_key is None:
        return None
    mine = runs.c.unique_key == _unique(key_of_caller(caller, idempotency_key))
    row = connection.execute(statements.SWEEPS.where(mine)).one_or_none()
    if row is None:
        return None
    return transitions.same_request(statements.read_sweep(row), read_document(SweepRequest, row.request), request)


def queue_sweep(
    connection: Connection,
    request: SweepRequest,
    now: float,
    *,
    caller: Caller = NOBODY_ASKED,
    idempotency_key: str | None = None,
    parent_id: str | None = None,
    new_id: Callable[[], str] = new_sweep_id,
) -> Sweep:
    """A new sweep of the caller, which waits for a worker; its end is told by its parent if it has one.

    Raises:
        InvalidInput: It asks for more accelerator-hours than the caller's quota ever has.
        QuotaExceeded: It asks for more than is left of the quota.
    """
    access.lock_caller(connection, caller)
    held = _held(connection, request, caller, now)
    new = NewRun(
        id=new_id(),
        kind="sweep",
        request=request,
        demand=Demand(budget=held.budget),
        created_by=caller.name,
        unique_key=_unique(idempotency_key),
        parent_id=parent_id,
        due_at=0.0,
    )
    insert_run(connection, new, now)
    sweep = Sweep(id=new.id, request=held, state=RunState.QUEUED, created_at=now, created_by=caller.name)
    connection.execute(statements.insert_sweep(sweep))
    records.write_event(connection, sweep.id, "sweep.created", transitions.sweep_facts(sweep.state), now)
    return sweep


def _unique(key: str | None) -> str | None:
    return None if key is None else f"sweep {key}"


def _held(connection: Connection, request: SweepRequest, caller: Caller, now: float) -> SweepRequest:
    """The request with no more accelerator-hours than the caller's quota leaves."""
    asked: Budget = request.budget
    hours = access.allowed_hours(connection, caller, asked.accelerator_hours, now)
    return (
        request
        if hours == asked.accelerator_hours
        else replace(request, budget=replace(asked, accelerator_hours=hours))
    )


def key_of_caller(caller: Caller, key: str | None) -> str | None:
    """The key as it is stored: another caller's equal key is another. Names and keys of HTTP hold no line break."""
    return f"{caller.name}\n{key}" if key is not None and caller.name else key
