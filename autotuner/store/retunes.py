"""Scheduled retunings and their runs on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, delete, insert, select, type_coerce, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.comparison import RunGroup
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.run import OPEN, Finish, NewRun, RunState
from autotuner.core.sweep import SweepRequest
from autotuner.core.upkeep import (
    Retune,
    RetuneOutcome,
    RetuneRequest,
    RetuneRun,
    RetuneRunRequest,
    Trigger,
    Verdict,
)
from autotuner.search.upkeep.cron import DueRun
from autotuner.search.upkeep.retune import Standing, retune_announcement
from autotuner.store import announcements
from autotuner.store.descriptions import check_name, name_taken, new_id
from autotuner.store.engine import AnyRow, AnySelect, one_row, reading, values_of, writing
from autotuner.store.options import Page
from autotuner.store.runs import Part, Rows, get_run, insert_run, read_run, select_runs, with_result
from autotuner.store.sweeps import queue_sweep
from autotuner.store.tables import read_document, retunes, runs

_REQUEST_TEXT = type_coerce(retunes.c.request, Text).label("request")

_RETUNES: AnySelect = select(
    _REQUEST_TEXT, *(column for column in retunes.c if column.name not in ("name", "request"))
).select_from(retunes)
"""Query of retunings with the request as text, so that one that this release cannot read does not hide the others."""

_NAMES = select(retunes.c.name)


class RetuneStore(Part):
    """The store of scheduled retunings ("retunes": jobs that are tuned again at regular times) and of their runs.

    ``start_run`` does all of its work or nothing. If several processes try to start the same run, one of them succeeds.
    A run waits for its sweep. After the sweep has ended, a worker takes the run and stores its result.
    """

    # ------------------------------------------------------------------ retunes
    def save(self, request: RetuneRequest, *, now: float, next_due_at: float | None, created_by: str = "") -> Retune:
        """Store a new retune (a job that is tuned again on a schedule) and return it.

        ``next_due_at`` is the due time of its first run; None: no run is due.

        Raises:
            Conflict: Another retune has its name.
        """
        check_name("retune.name", request.name)
        retune = Retune(
            request=request,
            created_at=now,
            incumbent=request.incumbent,
            next_due_at=next_due_at,
            created_by=created_by,
        )
        try:
            with writing(self._engine) as connection:
                stored = {name: own for name, own in values_of(retune).items() if name in retunes.c}
                connection.execute(insert(retunes).values(name=request.name, **stored))
        except IntegrityError:
            raise name_taken("retune", request.name) from None
        return retune

    def get(self, name: str) -> Retune:
        """Return the retune (a job that is tuned again on a schedule) of that name, with its latest run.

        If there is none, ``NotFound`` suggests the most similar name.
        """
        with reading(self._engine) as connection:
            return _with_last_run(connection, _get(connection, name))

    def list(self) -> Sequence[Retune]:
        """Return all retunes (jobs that are tuned again on a schedule), ordered by name.

        A retune of another release that this release cannot read is left out.
        """
        with reading(self._engine) as connection:
            found = [_with_last_run(connection, one) for one in _readable(connection.execute(_RETUNES).all())]
        return sorted(found, key=lambda retune: retune.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def set_paused(self, name: str, paused: bool, *, next_due_at: float | None) -> Retune:
        """Pause a retune's schedule, or let it continue with its next run at ``next_due_at``.

        A paused retune has no due time.
        """
        return self._change(name, is_paused=paused, next_due_at=None if paused else next_due_at)

    def set_incumbent(self, name: str, layout: Layout, baseline: Sequence[RunGroup]) -> Retune:
        """Store the layout that a retune has in use from now on, and ``baseline``, the runs that measured it."""
        return self._change(name, incumbent=layout, baseline=tuple(baseline))

    def remove(self, name: str) -> None:
        """Delete a retune (a job that is tuned again on a schedule) and its runs; the sweeps of the runs stay.

        Raise ``Conflict`` if one of its runs is not finished.
        """
        with writing(self._engine) as connection:
            one_row(connection, _NAMES.where(retunes.c.name == name).with_for_update(), "retune", name, _NAMES)
            if (run := _unfinished_run(connection, name)) is not None:
                raise Conflict(f"run {run.id} of the retune {name} is not finished; wait for it, or cancel its sweep")
            connection.execute(delete(runs).where(runs.c.kind == "retune", runs.c.subject == name))
            connection.execute(delete(retunes).where(retunes.c.name == name))

    # ------------------------------------------------------------------ runs
    def due(self, now: float) -> Sequence[Retune]:
        """Return the retunes whose next scheduled run is due at ``now`` or earlier, ordered by due time."""
        query = _RETUNES.where(retunes.c.next_due_at <= now).order_by(retunes.c.next_due_at, retunes.c.name)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return [*_readable(rows)]

    def start_run(
        self,
        name: str,
        due: DueRun,
        *,
        now: float,
        sweep: SweepRequest | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> RetuneRun | None:
        """Store a new run of a retune, queue its sweep, and store the retune's next due time, in one transaction.

        Returns None and changes nothing if something has changed since the caller looked: the retune is gone or has
        another due time, a run for that due time exists, or ``due.skipped`` is wrong. A run must be skipped if and only
        if another run of the retune is unfinished.

        Args:
            name: Name of the retune.
            due: The time at which the run was due, and the time at which the next run is due. A run that somebody
                starts by hand is due now, and does not change the next due time.
            now: Time at which the run starts.
            sweep: Request for the sweep that measures. None: the run is skipped, or it cannot start and ends at once.
            caller: Owner of the sweep, which is checked against the caller's quota, as in ``Store.create_sweep``.
        """
        assert not (due.skipped and sweep), "a skipped run measures nothing"
        with writing(self._engine) as connection:
            if not (_lock(connection, name, _is_due_at(due.expected_due_at)) and _can_start(connection, name, due)):
                return None
            request = RetuneRunRequest(
                due_at=due.due_at,
                trigger=due.trigger,
                started_at=now,
                num_missed=due.num_missed,
                is_skipped=due.skipped,
            )
            key = _unique(name, due.due_at)
            new = NewRun(id=new_id("rt"), kind="retune", request=request, subject=name, unique_key=key, due_at=0.0)
            if due.skipped:
                self._runs.add_ended(connection, new, _SKIPPED, due.due_at, ended_at=now)
            else:
                child = sweep and queue_sweep(connection, sweep, now, caller=caller, parent_id=new.id)
                insert_run(connection, replace(new, awaits=child.id if child else None), due.due_at)
            connection.execute(update(retunes).where(retunes.c.name == name).values(next_due_at=due.next_due_at))
            return get_run(connection, RETUNE_ROWS, new.id)

    def unfinished_run(self, name: str) -> RetuneRun | None:
        """Return the unfinished run of the retune ``name``, or None. A retune has at most one unfinished run."""
        with reading(self._engine) as connection:
            return _unfinished_run(connection, name)

    def runs(self, name: str, *, page: Page = Page()) -> tuple[Sequence[RetuneRun], int]:
        """Return one page of a retune's runs, latest due time first, and the total number of its runs.

        ``name`` is the name of the retune (a job that is tuned again on a schedule).
        """
        with reading(self._engine) as connection:
            one_row(connection, _NAMES.where(retunes.c.name == name), "retune", name, _NAMES)
        return self._runs.list(RetuneRun, subject=name, page=page)

    def _change(self, name: str, **changed: Any) -> Retune:
        with writing(self._engine) as connection:
            connection.execute(update(retunes).where(retunes.c.name == name).values(changed))
            return _with_last_run(connection, _get(connection, name))


# ---------------------------------------------------------------------- on a connection
def _readable(rows: Sequence[AnyRow]) -> Iterator[Retune]:
    """Yield the retunings in rows of ``_RETUNES``, without those that this release cannot read."""
    for row in rows:
        with suppress(InvalidInput):
            yield _read(row)


def _get(connection: Connection, name: str) -> Retune:
    return _read(one_row(connection, _RETUNES.where(retunes.c.name == name), "retune", name, _NAMES))


def _read(row: AnyRow) -> Retune:
    return Retune(**{**row._mapping, "request": read_document(RetuneRequest, row.request)})


def _with_last_run(connection: Connection, retune: Retune) -> Retune:
    """Return the retuning with the newest of its last 20 runs that was not skipped."""
    rows = connection.execute(select_runs(["retune"], retune.name).limit(_LATELY)).all()
    ran = (run for row in rows if not (run := read_run(RETUNE_ROWS, row)).request.is_skipped)
    return replace(retune, last_run=next(ran, None))


_LATELY = 20
"""Number of the newest runs that are searched for one that was not skipped."""


def _lock(connection: Connection, name: str, *conditions: ColumnElement[bool]) -> bool:
    """Lock the retuning until the transaction ends, and return True if it is stored and meets the conditions."""
    mine = _NAMES.where(retunes.c.name == name, *conditions)
    return connection.scalar(mine.with_for_update()) is not None


def _is_due_at(due_at: float | None) -> ColumnElement[bool]:
    return retunes.c.next_due_at.is_(None) if due_at is None else retunes.c.next_due_at == due_at


def _can_start(connection: Connection, name: str, due: DueRun) -> bool:
    """Return True if this due time has no run yet.

    The run must be skipped if another run is unfinished, and only then.
    """
    taken = select(runs.c.id).where(runs.c.unique_key == _unique(name, due.due_at))
    is_taken = connection.scalar(taken) is not None
    return not is_taken and due.skipped == (_unfinished_run(connection, name) is not None)


def _unfinished_run(connection: Connection, name: str) -> RetuneRun | None:
    row = connection.execute(select_runs(["retune"], name, states=OPEN)).one_or_none()
    return None if row is None else read_run(RETUNE_ROWS, row)


def _unique(name: str, due_at: float) -> str:
    return f"retune {due_at!r} {name}"


_SKIPPED = Finish(state=RunState.CANCELLED, detail="another run of this retune was not finished")


# ---------------------------------------------------------------------- in the transaction that ends a run
def _end(connection: Connection, run_id: str, end: Finish, now: float) -> None:
    """Store the incumbent and the baseline that the run leaves to its retuning, and announce the end of the run."""
    try:
        run = get_run(connection, RETUNE_ROWS, run_id)
    except InvalidInput:  # another release wrote it
        run = _unread(connection, run_id, end)
    if run.result is None:  # it was skipped
        return
    name = run.subject
    _lock(connection, name)
    with suppress(InvalidInput):  # a retune of another release stays as it is
        retune = _get(connection, name)
        after = Standing.after(retune, run.result)
        if (after.incumbent, after.baseline) != (retune.incumbent, retune.baseline):
            changed = {"incumbent": after.incumbent, "baseline": after.baseline}
            connection.execute(update(retunes).where(retunes.c.name == name).values(changed))
    announcements.tell(connection, retune_announcement(run, run.result, end.announced or end.detail, at=now))


def _unread(connection: Connection, run_id: str, end: Finish) -> RetuneRun:
    """Return a run that this release cannot read, as far as its columns describe it."""
    columns = (runs.c.subject, runs.c.created_by, runs.c.created_at, runs.c.due_at)
    row = connection.execute(select(*columns).where(runs.c.id == run_id)).one()
    request = RetuneRunRequest(due_at=row.created_at, trigger=Trigger.CRON, started_at=row.created_at)
    return RetuneRun(id=run_id, state=end.state, request=request, result=_COULD_NOT_RUN, **row._mapping)


_COULD_NOT_RUN = RetuneOutcome(verdict=Verdict.COULD_NOT_RUN)


RETUNE_ROWS = Rows(
    run=RetuneRun,
    noun="retune run",
    ended=with_result(_COULD_NOT_RUN),
    on_end=_end,
    has_jobs=lambda *_: True,  # after its sweep has ended, a run is decided
)
"""Describes runs of scheduled retunings to the store of runs."""
