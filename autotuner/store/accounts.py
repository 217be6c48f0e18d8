"""What callers take and did, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial

from sqlalchemy import ColumnElement, Connection, Engine, insert, select, text, union_all

from autotuner.core.access import DAY_S, AuditEntry, Caller, Usage, hours_allowed, require_room_for_sweep
from autotuner.core.run import RunState
from autotuner.ports import Page
from autotuner.store import overviews, records
from autotuner.store.engine import reading, writing
from autotuner.store.identity import new_audit_id
from autotuner.store.statements import AnySelect
from autotuner.store.tables import audit, gates, sweeps, trials

_UNFINISHED = tuple(state for state in RunState if not state.is_finished)
_FINISHED = tuple(state for state in RunState if state.is_finished)

_ENTRIES: AnySelect = select(*(audit.c[field.name] for field in fields(AuditEntry))).select_from(audit)


class SqlAccounts:
    """The AccountStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def usage(self, caller: str, *, now: float) -> Usage:
        with reading(self._engine) as connection:
            return _usage(connection, caller, now)

    def record(self, entry: AuditEntry) -> None:
        with writing(self._engine) as connection:
            connection.execute(insert(audit).values(id=new_audit_id(), **asdict(entry)))

    def audit(self, *, caller: str | None = None, page: Page = Page()) -> tuple[Sequence[AuditEntry], int]:
        with reading(self._engine) as connection:
            rows, total = records.window(connection, select_audit(caller), page)
        return [AuditEntry(**row._mapping) for row in rows], total


# ---------------------------------------------------------------------- on a connection
def select_audit(caller: str | None) -> AnySelect:
    """Entries in the order of a list, those of one caller or all."""
    chosen = _ENTRIES if caller is None else _ENTRIES.where(audit.c.caller == caller)
    return chosen.order_by(audit.c.at.desc(), audit.c.id.desc())


def lock_caller(connection: Connection, caller: Caller) -> None:
    """Nobody else is given something of the caller's quota until the transaction ends; SQLite has one writer anyway."""
    if caller.quota.is_limiting_sweeps and connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": caller.name})


def allowed_hours(
    connection: Connection, caller: Caller, asked: float | None, now: float, *, is_new: bool = True
) -> float | None:
    """Accelerator-hours that a sweep of a locked caller may take; None: as many as it likes.

    Args:
        connection: In the transaction that gives them.
        caller: Whose sweep it is.
        asked: How many it asks for; of one that is unfinished already, how many more.
        now: The time.
        is_new: Whether it is one sweep more that is unfinished.

    Raises:
        InvalidInput: It asks for more than the quota ever has.
        QuotaExceeded: The caller has as many sweeps as may be, or has not so much left.
    """
    if not caller.quota.is_limiting_sweeps:
        return asked
    usage = _usage(connection, caller.name, now)
    if is_new:
        require_room_for_sweep(caller.quota, usage)
    return hours_allowed(caller.quota, usage, asked, frees_in_s=partial(_frees_in_s, connection, caller.name, now))


def _usage(connection: Connection, caller: str, now: float) -> Usage:
    unfinished = (sweeps.c.created_by == caller) & sweeps.c.state.in_(_UNFINISHED)
    budgets = dict(connection.execute(select(sweeps.c.id, sweeps.c.budget).where(unfinished)).all())
    spent = overviews.hours_spent(connection, list(budgets), now)
    promised = [_promised(budget.accelerator_hours, spent[sweep_id]) for sweep_id, budget in budgets.items()]
    return Usage(
        unfinished_sweeps=len(budgets),
        accelerator_hours=sum(hours for _, hours in connection.execute(select_used(caller, now))),
        promised_hours=None if None in promised else sum(hours for hours in promised if hours is not None),
    )


def _promised(budget: float | None, spent: float) -> float | None:
    return None if budget is None else max(0.0, budget - spent)


def select_used(caller: str, now: float) -> AnySelect:
    """Hours of the last day with when they ended, the oldest first: of trials, and of loss gates with their trials'."""
    since = now - DAY_S
    mine = _recent_sweeps(caller, since)
    of_trials = select(trials.c.finished_at, overviews.run_hours(now).label("hours")).where(
        trials.c.sweep_id.in_(mine), _is_recent(since)
    )
    of_gates = (
        select(trials.c.finished_at, gates.c.accelerator_hours.label("hours"))
        .join_from(gates, trials, trials.c.id == gates.c.trial_id)
        .where(gates.c.sweep_id.in_(mine), _is_recent(since))
    )
    used = union_all(of_trials, of_gates).subquery()
    is_running = used.c.finished_at.is_(None)
    return select(used.c.finished_at, used.c.hours).where(used.c.hours > 0).order_by(is_running, used.c.finished_at)


def _recent_sweeps(caller: str, since: float) -> AnySelect:
    """Ids of the sweeps whose trials may have run since then, from an index alone."""
    own = select(sweeps.c.id).where(sweeps.c.created_by == caller)
    ended = own.where(sweeps.c.state.in_(_FINISHED), sweeps.c.finished_at > since)
    both = union_all(own.where(sweeps.c.state.in_(_UNFINISHED)), ended).subquery()
    return select(both.c.id)


def _is_recent(since: float) -> ColumnElement[bool]:
    return trials.c.finished_at.is_(None) | (trials.c.finished_at > since)


def _frees_in_s(connection: Connection, caller: str, now: float, hours: float) -> float | None:
    """After how long so many hours were used more than a day ago; None: those that are used still run."""
    freed = 0.0
    for row in connection.execute(select_used(caller, now)):
        freed += row.hours
        if row.finished_at is not None and freed >= hours:
            return max(0.0, float(row.finished_at) + DAY_S - now)
    return None
