"""Retunes and their runs on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Text, delete, insert, or_, select, type_coerce, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import Announcement
from autotuner.core.comparison import RunGroup
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.layout import Layout
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.upkeep import Retune, RetuneOutcome, RetuneRequest, RetuneRun, RetuneState, Trigger
from autotuner.ports import Page
from autotuner.store import announcements, queueing, records
from autotuner.store.engine import reading, writing
from autotuner.store.identity import check_name, name_taken, new_run_id, no_such_name
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import retune_runs, retunes, sweeps
from autotuner.store.tables.columns import read_document

_REQUEST_TEXT = type_coerce(retunes.c.request, Text).label("request")

_RETUNES: AnySelect = select(
    _REQUEST_TEXT, *(retunes.c[field.name] for field in fields(Retune) if field.name != "request")
).select_from(retunes)
"""Retunes with what was asked as text, so that one that cannot be read does not keep the others from being read."""

_RUNS: AnySelect = select(*(retune_runs.c[field.name] for field in fields(RetuneRun))).select_from(retune_runs)

_UNFINISHED = retune_runs.c.state == RetuneState.RUNNING


class SqlRetunes:
    """The RetuneStore port: each write locks the retune's row first (SQLite: the database)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ------------------------------------------------------------------ retunes
    def save(self, request: RetuneRequest, *, now: float, next_due_at: float | None, created_by: str = "") -> Retune:
        check_name("retune.name", request.name)
        retune = Retune(
            request=request,
            created_at=now,
            incumbent=request.incumbent,
            next_due_at=next_due_at,
            created_by=created_by,
        )
        values = {field.name: getattr(retune, field.name) for field in fields(Retune)}
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(retunes).values(name=request.name, **values))
        except IntegrityError:
            raise name_taken("retune", request.name) from None
        return retune

    def get(self, name: str) -> Retune:
        with reading(self._engine) as connection:
            return _get(connection, name)

    def list(self) -> Sequence[Retune]:
        with reading(self._engine) as connection:
            found = _readable(connection.execute(_RETUNES).all())
        return sorted(found, key=lambda retune: retune.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def set_paused(self, name: str, paused: bool, *, next_due_at: float | None) -> Retune:
        return self._change(name, is_paused=paused, next_due_at=None if paused else next_due_at)

    def set_incumbent(self, name: str, layout: Layout, baseline: Sequence[RunGroup]) -> Retune:
        return self._change(name, incumbent=layout, baseline=tuple(baseline))

    def remove(self, name: str) -> None:
        with writing(self._engine) as connection:
            if not _lock(connection, name):
                raise _no_such_retune(connection, name)
            if (run := _unfinished_run(connection, name)) is not None:
                raise Conflict(f"run {run.id} of the retune {name} is not finished; wait for it, or cancel its sweep")
            connection.execute(delete(retune_runs).where(retune_runs.c.retune == name))
            connection.execute(delete(retunes).where(retunes.c.name == name))

    # ------------------------------------------------------------------ runs
    def due(self, now: float) -> Sequence[Retune]:
        query = _RETUNES.where(retunes.c.next_due_at <= now).order_by(retunes.c.next_due_at, retunes.c.name)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return [*_readable(rows)]

    def start_run(
        self,
        name: str,
        *,
        expected_due_at: float | None,
        due_at: float,
        next_due_at: float | None,
        trigger: Trigger,
        now: float,
        sweep: SweepRequest | None = None,
        num_missed: int = 0,
        skipped: bool = False,
        caller: Caller = NOBODY_ASKED,
    ) -> RetuneRun | None:
        assert not (skipped and sweep), "what is skipped measures nothing"
        with writing(self._engine) as connection:
            if not (
                _lock(connection, name, _is_due_at(expected_due_at)) and _can_start(connection, name, due_at, skipped)
            ):
                return None
            run = RetuneRun(
                id=new_run_id(),
                retune=name,
                due_at=due_at,
                trigger=trigger,
                state=RetuneState.SKIPPED if skipped else RetuneState.RUNNING,
                started_at=now,
                finished_at=now if skipped else None,
                sweep_id=queueing.queue_sweep(connection, sweep, now, caller=caller).id if sweep else None,
                num_missed=num_missed,
            )
            connection.execute(insert(retune_runs).values(_run_values(run)))
            connection.execute(update(retunes).where(retunes.c.name == name).values(next_due_at=next_due_at))
            return run

    def unfinished_run(self, name: str) -> RetuneRun | None:
        with reading(self._engine) as connection:
            return _unfinished_run(connection, name)

    def concludable(self) -> Sequence[tuple[RetuneRun, Sweep | None]]:
        over = or_(retune_runs.c.sweep_id.is_(None), sweeps.c.finished_at.is_not(None))
        query = _RUNS.outerjoin(sweeps, sweeps.c.id == retune_runs.c.sweep_id).where(_UNFINISHED, over)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(retune_runs.c.started_at, retune_runs.c.id)).all()
            return [*records.with_sweeps(connection, [_read_run(row) for row in rows])]

    def conclude(
        self,
        run_id: str,
        outcome: RetuneOutcome,
        *,
        now: float,
        incumbent: Layout | None = None,
        baseline: Sequence[RunGroup] | None = None,
        announcement: Announcement | None = None,
        seen: Retune | None = None,
    ) -> RetuneRun | None:
        with writing(self._engine) as connection:
            name = _get_run(connection, run_id).retune
            _lock(connection, name)
            if seen is not None and not _is_held_to(_get(connection, name), seen):
                return None
            ended = {"state": RetuneState.FINISHED, "finished_at": now, "verdict": outcome.verdict, "outcome": outcome}
            mine = (retune_runs.c.id == run_id) & _UNFINISHED
            if not connection.execute(update(retune_runs).where(mine).values(ended)).rowcount:
                return None
            changed = {"incumbent": incumbent, "baseline": None if baseline is None else tuple(baseline)}
            if changed := {field: value for field, value in changed.items() if value is not None}:
                connection.execute(update(retunes).where(retunes.c.name == name).values(changed))
            if announcement is not None:
                announcements.tell(connection, announcement)
            return _get_run(connection, run_id)

    def get_run(self, run_id: str) -> RetuneRun:
        with reading(self._engine) as connection:
            return _get_run(connection, run_id)

    def runs(self, name: str, *, page: Page = Page()) -> tuple[Sequence[RetuneRun], int]:
        with reading(self._engine) as connection:
            if connection.scalar(select(retunes.c.name).where(retunes.c.name == name)) is None:
                raise _no_such_retune(connection, name)
            rows, total = records.window(connection, runs_newest_first(name), page)
        return [_read_run(row) for row in rows], total

    def _change(self, name: str, **changed: Any) -> Retune:
        with writing(self._engine) as connection:
            connection.execute(update(retunes).where(retunes.c.name == name).values(changed))
            return _get(connection, name)


# ---------------------------------------------------------------------- on a connection
def _readable(rows: Sequence[AnyRow]) -> Iterator[Retune]:
    """The retunes in rows of ``_RETUNES`` but for those that another release wrote and this one cannot read."""
    for row in rows:
        with suppress(InvalidInput):
            yield _read(row)


def runs_newest_first(name: str) -> AnySelect:
    """The history of a retune, in the order of an index."""
    return _RUNS.where(retune_runs.c.retune == name).order_by(retune_runs.c.due_at.desc())


def _get(connection: Connection, name: str) -> Retune:
    row = connection.execute(_RETUNES.where(retunes.c.name == name)).one_or_none()
    if row is None:
        raise _no_such_retune(connection, name)
    return _read(row)


def _read(row: AnyRow) -> Retune:
    return Retune(**{**row._mapping, "request": read_document(RetuneRequest, row.request)})


def _no_such_retune(connection: Connection, name: str) -> NotFound:
    return no_such_name("retune", name, connection.scalars(select(retunes.c.name)))


def _lock(connection: Connection, name: str, *conditions: ColumnElement[bool]) -> bool:
    """Whether the retune is stored as the conditions say; nobody else changes it until the transaction ends."""
    mine = select(retunes.c.name).where(retunes.c.name == name, *conditions)
    return connection.scalar(mine.with_for_update()) is not None


def _is_held_to(retune: Retune, seen: Retune) -> bool:
    return (retune.incumbent, retune.baseline) == (seen.incumbent, seen.baseline)


def _is_due_at(due_at: float | None) -> ColumnElement[bool]:
    return retunes.c.next_due_at.is_(None) if due_at is None else retunes.c.next_due_at == due_at


def _can_start(connection: Connection, name: str, due_at: float, skipped: bool) -> bool:
    """The due time has no run, and it is skipped if and only if another run is unfinished."""
    runs = select(retune_runs.c.id).where(retune_runs.c.retune == name)
    is_taken = connection.scalar(runs.where(retune_runs.c.due_at == due_at)) is not None
    return not is_taken and skipped == (_unfinished_run(connection, name) is not None)


def _unfinished_run(connection: Connection, name: str) -> RetuneRun | None:
    row = connection.execute(_RUNS.where(retune_runs.c.retune == name, _UNFINISHED)).one_or_none()
    return None if row is None else _read_run(row)


def _get_run(connection: Connection, run_id: str) -> RetuneRun:
    row = connection.execute(_RUNS.where(retune_runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("retune run", run_id)
    return _read_run(row)


def _read_run(row: AnyRow) -> RetuneRun:
    return RetuneRun(**row._mapping)


def _run_values(run: RetuneRun) -> dict[str, Any]:
    return {field.name: getattr(run, field.name) for field in fields(RetuneRun)}
