"""RunStore: the queue of durable runs on SQLite and PostgreSQL.

Every public method without a connection parameter is one transaction. A worker writes through ``holding``, which locks
the run and refuses a worker whose lease was taken over. A run that another run waits for is locked before that other
run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from time import monotonic
from typing import Any, Generic, TypedDict, TypeVar, Unpack, get_type_hints, overload

from sqlalchemy import ColumnElement, Connection, Engine, and_, bindparam, case, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.access import Caller, Scope
from autotuner.core.announcement import DeliveryRun
from autotuner.core.cluster_check import CheckRun
from autotuner.core.documents import dataclasses_in
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import (
    OPEN,
    RENEWALS_PER_LEASE,
    Finish,
    Lease,
    NewRun,
    Problem,
    Run,
    RunState,
    Stop,
    Wish,
    kind_of,
)
from autotuner.core.study import StudyRun
from autotuner.search.planning.plan import PlanRun
from autotuner.store.engine import AnyRow, AnySelect, one_row, reading, values_of, window, writing
from autotuner.store.options import Page
from autotuner.store.tables import read_document, runs

_children = runs.alias("children")
_CHILD = select(func.min(_children.c.id)).where(_children.c.parent_id == runs.c.id).scalar_subquery().label("child_id")

_RUNS: AnySelect = select(*runs.columns, _CHILD).select_from(runs)

R = TypeVar("R", bound=Run)

NEWEST = (runs.c.created_at.desc(), runs.c.id.desc())
"""Order of lists of runs, newest first; the indexes have the same order."""


def _nothing(*_: object) -> None:
    """Accept any arguments and do nothing."""


def _no_pause(run: Run) -> None:
    raise Conflict(f"{run.kind} {run.id} cannot be paused, because only sweeps can; you can cancel it")


def with_result(could_not_run: Any) -> Callable[[Any, Finish], Finish]:
    """Return a function for ``Rows.ended`` that gives the result ``could_not_run`` to runs that ended without a result.

    A run ends without a result if it is cancelled or fails.
    """
    return lambda _, end: end if end.result is not None else replace(end, result=could_not_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[R]):
    """Tells the store how to handle one kind of run: the types of its documents, and its rows in other tables.

    The store calls each function inside the transaction that changes the run. The row of the run is then locked.
    """

    run: type[R]
    is_listed: bool = True
    """False if callers can neither read nor stop such a run."""
    scope: Scope = Scope.RUN
    """Scope that a caller needs to stop such a run, unless the caller created it."""
    noun: str = ""
    """Noun for such a run in messages; empty: the name of the kind."""
    goes_on_by: str = "start another one"
    """Advice in messages on how to continue after a finished run."""
    on_claim: Callable[[Connection, Run, float], None] = _nothing
    """Function that undoes what a dead worker had begun. It gets the run in its state before. It may raise
    ``InvalidInput``."""
    on_state: Callable[[Connection, str, RunState, float], None] = _nothing
    """Function that is called when a run begins, continues, is paused or is queued again. It gets the run's id."""
    on_end: Callable[[Connection, str, Finish, float], None] = _nothing
    """Function that is called when a run has ended. It gets the run's id only, because this release may not be able to
    read the run."""
    ended: Callable[[Any, Finish], Finish] = lambda _, end: end
    """Function that returns how a run ends; it adds a result to an error or a cancellation that has none."""
    has_jobs: Callable[[Connection, Run], bool] = lambda _, run: run.state is RunState.RUNNING
    """Function that returns True if a worker must act on a cancel or a pause, because an engine may still run a job."""
    check_pause: Callable[[Any], None] = _no_pause
    """Function that raises ``Conflict`` if the run must not be paused."""


ROWS: Mapping[str, Rows[Any]] = {
    "delivery": Rows(run=DeliveryRun, is_listed=False),
    "check": Rows(run=CheckRun),
    "study": Rows(run=StudyRun, noun="optimizer study"),
    "plan": Rows(run=PlanRun, scope=Scope.ADMIN),  # callers with the same question share one plan
}
"""The kinds of runs that have no table of their own, by name."""


class Where(TypedDict, total=False):
    """A filter of runs. A field that is missing or None excludes nothing; a run must match all other fields."""

    subject: str | None
    """Only runs about this subject."""
    parent_id: str | None
    """Only runs that this run has queued."""
    states: Collection[RunState]
    """Only runs in one of these states; empty: runs in any state."""


class RunStore:
    """The store of durable runs of all kinds: sweeps, checks, studies, plans, gates, retune runs and deliveries.

    A method raises ``NotFound`` if no run of the kind has the id. A method with a ``lease`` raises ``LeaseLost`` if
    another worker has claimed the run since then, or if the run has ended or was deleted. The store knows only the
    kinds for which it has ``rows``.
    """

    def __init__(self, engine: Engine, rows: Mapping[str, Rows[Any]] = ROWS) -> None:
        self._engine = engine
        self._rows = rows

    # ------------------------------------------------------------------ callers
    def add(self, new: NewRun, *, now: float) -> tuple[Run, bool]:
        """Queue a new run and return it with True, or return the stored run with the same id or unique key with False.

        Raises:
            Conflict: The unique key belongs to a run with a different request.
        """
        try:
            with writing(self._engine) as connection:
                insert_run(connection, new, now)
        except IntegrityError:
            return self._made_before(new), False
        return self.get(new.kind, new.id), True

    def _made_before(self, new: NewRun) -> Run:
        same = (runs.c.id == new.id) | (runs.c.unique_key == new.unique_key)
        with reading(self._engine) as connection:
            found = self._read(connection.execute(_RUNS.where(runs.c.kind == new.kind, same)).one())
        if found.request != new.request:
            raise another_request(new.kind, found.id)
        return found

    @overload
    def get(self, kind: type[R], run_id: str) -> R: ...
    @overload
    def get(self, kind: str, run_id: str) -> Run: ...
    def get(self, kind: type[Run] | str, run_id: str) -> Run:
        """Return a run as it is stored now.

        Raise ``Unreadable`` if another release wrote the run and this release cannot read it.
        """
        with reading(self._engine) as connection:
            return self._get(connection, _name(kind), run_id)

    def identify(self, run_id: str) -> Identity:
        """Return the kind, subject, creator and state of a run.

        This also works for a run that another release wrote and this release cannot read.
        """
        columns = (runs.c.kind, runs.c.subject, runs.c.created_by, runs.c.state)
        mine = select(*columns).where(runs.c.id == run_id, runs.c.kind.in_(self._listed()))
        with reading(self._engine) as connection:
            row = one_row(connection, mine, "run", run_id)
        known = self._rows[row.kind]
        return Identity(**row._mapping, noun=known.noun or row.kind, scope=known.scope)

    def _listed(self) -> Sequence[str]:
        return [kind for kind, rows in self._rows.items() if rows.is_listed]

    @overload
    def list(self, kind: type[R], *, page: Page = Page(), **where: Unpack[Where]) -> tuple[Sequence[R], int]: ...
    @overload
    def list(self, kind: str | None, *, page: Page = Page(), **where: Unpack[Where]) -> tuple[Sequence[Run], int]: ...
    def list(
        self, kind: type[Run] | str | None, *, page: Page = Page(), **where: Unpack[Where]
    ) -> tuple[Sequence[Run], int]:
        """Return one page of runs, newest first, and the total number of runs that match.

        If ``kind`` is None, runs of all listed kinds are returned. Runs that this release cannot read are not on the
        page, but they are counted.
        """
        kinds = self._listed() if kind is None else [_name(kind)]
        with reading(self._engine) as connection:
            rows, total = window(connection, select_runs(kinds, **where), page)
        return [*self._readable(rows)], total

    def _readable(self, rows: Sequence[AnyRow]) -> Iterator[Run]:
        for row in rows:
            with suppress(InvalidInput):
                yield self._read(row)

    def reopen(self, kind: str, run_id: str, progress: Any, *, now: float) -> Run:
        """Queue a finished run again, such as a failed plan or delivery. ``progress`` replaces the run's progress.

        Raise ``Conflict`` if the run is not finished.
        """
        with writing(self._engine) as connection:
            run = self.lock(connection, kind, run_id)
            if not run.state.is_finished:
                raise Conflict(
                    f"{self._noun(kind)} {run_id} is {run.state.value}, so it cannot be started again before "
                    "it ends; wait for its end, or cancel it"
                )
            self.queue_again(connection, run, now, due_at=now, progress=_text(progress))
            return self._get(connection, kind, run_id)

    def cancel(self, kind: str, run_id: str, detail: str, *, now: float) -> Run:
        """End a run at once if no worker and no job is busy with it; otherwise ask its worker to end it.

        A finished run stays unchanged. If the run waits for another run, such as its sweep, the other run is cancelled,
        and the end of the other run decides how this run ends. ``detail`` is the explanation that is stored if the run
        ends at once.
        """
        with writing(self._engine) as connection:
            awaited = connection.execute(_select_awaited(run_id)).one_or_none()
            if awaited is None or self._cancel_awaited(connection, awaited.kind, awaited.id, detail, now):
                self._cancel(connection, self.lock(connection, kind, run_id), detail, now)
            return self._get(connection, kind, run_id)

    def _cancel_awaited(self, connection: Connection, kind: str, run_id: str, detail: str, now: float) -> bool:
        """Cancel a run that another one waits for, and return True if it has ended."""
        try:
            run = self.lock(connection, kind, run_id)
        except InvalidInput as problem:
            return not self._fail_unreadable(connection, kind, run_id, problem, now)
        self._cancel(connection, run, detail, now)
        return run.state.is_finished

    def _cancel(self, connection: Connection, run: Run, detail: str, now: float) -> None:
        if run.state.is_finished:
            return
        is_busy = self._is_busy(connection, run)
        _update(connection, run.id, wanted=Stop.CANCEL, due_at=min(run.due_at, now))
        if not is_busy:
            self._end(connection, run, Finish(state=RunState.CANCELLED, detail=detail), now)

    def pause(self, kind: str, run_id: str, *, now: float) -> Run:
        """Pause a run at once if no worker and no job is busy with it. Otherwise ask its worker to pause it.

        Raises:
            Conflict: The run is finished or being cancelled, or a run of this kind cannot be paused.
        """
        with writing(self._engine) as connection:
            run = self.lock(connection, kind, run_id)
            if run.state is RunState.PAUSED or run.wanted is Stop.PAUSE:
                return run
            if run.state.is_finished:
                raise Conflict(f"{self._noun(kind)} {run_id} is already {run.state.value}, so it cannot be paused")
            if run.wanted is Stop.CANCEL:
                raise Conflict(f"{self._noun(kind)} {run_id} is being cancelled, so it cannot be paused")
            self._rows[kind].check_pause(run)
            if self._is_busy(connection, run):
                _update(connection, run_id, wanted=Stop.PAUSE)
            else:
                self._pause(connection, run, now)
            return self._get(connection, kind, run_id)

    def resume(self, kind: str, run_id: str, *, now: float) -> Run:
        """Queue a paused run again, or withdraw a request to pause that no worker has carried out yet.

        Raise ``Conflict`` if the run has ended.
        """
        with writing(self._engine) as connection:
            run = self.lock(connection, kind, run_id)
            if run.state.is_finished:
                how = self._rows[kind].goes_on_by
                raise Conflict(f"{self._noun(kind)} {run_id} is {run.state.value}; to continue, {how}")
            if run.state is RunState.PAUSED:
                self._set_state(connection, run, RunState.QUEUED, now)
            elif run.wanted is Stop.PAUSE:
                _update(connection, run_id, wanted=None)
            return self._get(connection, kind, run_id)

    def fail_unreadable(self, kind: str, run_id: str, problem: InvalidInput, *, now: float) -> None:
        """End, as failed, a run that this release cannot read, and store ``problem`` as the reason.

        ``problem`` is the error of reading the run. A run that has already ended stays unchanged.
        """
        with writing(self._engine) as connection:
            self._fail_unreadable(connection, kind, run_id, problem, now)

    def _fail_unreadable(
        self, connection: Connection, kind: str, run_id: str, problem: InvalidInput, now: float
    ) -> bool:
        """End a run that this release cannot read, and return True; return False if it has ended already."""
        state = select(runs.c.state).where(runs.c.id == run_id, runs.c.kind == kind).with_for_update()
        if RunState(connection.scalars(state).one()).is_finished:
            return False
        self._end_unread(connection, kind, run_id, problem, now)
        return True

    # ------------------------------------------------------------------ workers
    def leases(self, kinds: Collection[str]) -> Sequence[Lease]:
        """Return all leases that workers hold on runs of these kinds, including those that were not renewed in time."""
        with reading(self._engine) as connection:
            rows = connection.execute(_HELD, {"kinds": list(kinds)})
            return [lease for row in rows if (lease := read_lease(row)) is not None]

    def claim(
        self, kinds: Collection[str], *, owner: str, now: float, lease_s: float, lapsed: Collection[Lease] = ()
    ) -> Run | None:
        """Give the worker ``owner`` the run that has been due longest, or None if none is due.

        Only one worker gets a run. The worker may also take over a run whose lease is in ``lapsed``, the leases that
        the worker has seen without a renewal for too long. It takes over no run whose lease was renewed in the
        meantime. If this call had to wait long for the database, it takes over no run at all, since other workers could
        not renew their leases during that wait.
        """
        oldest, named = select_due(lapsed), {"kinds": list(kinds), "now": now}
        with reading(self._engine) as connection:  # workers look often, so this must not lock
            if connection.scalar(oldest, named) is None:
                return None
        began_at = monotonic()
        with writing(self._engine) as connection:
            waited_s = monotonic() - began_at
            if any(waited_s > lease.lease_s / RENEWALS_PER_LEASE for lease in lapsed):
                oldest = select_due(())  # a worker that holds one may have waited for this lock to renew it
            while (run_id := connection.scalar(oldest.with_for_update(skip_locked=True), named)) is not None:
                mine = _RUNS.where(runs.c.id == run_id)
                row = connection.execute(mine).one()
                try:
                    self._rows[row.kind].on_claim(connection, self._read(row), now)
                except InvalidInput as problem:  # written by another release; other runs must not wait for it
                    self._end_unread(connection, row.kind, run_id, problem, now)
                    continue
                signs = {"claim": runs.c.claim + 1, "renewals": runs.c.renewals + 1, "owner": owner, "lease_s": lease_s}
                signs |= {"started_at": func.coalesce(runs.c.started_at, now), "seen_at": now, **_taken_up(now)}
                _update(connection, run_id, state=RunState.RUNNING, **signs)
                if row.state is not RunState.RUNNING:
                    self._rows[row.kind].on_state(connection, run_id, RunState.RUNNING, now)
                return self._read(connection.execute(mine).one())
            return None

    def renew(self, lease: Lease, progress: Any = None, *, now: float) -> Wish:
        """Renew a worker's lease, and return the run's demand: whether people asked to stop, pause or change it.

        ``progress`` is stored with the run; None keeps the stored progress.
        """
        with self.holding(lease) as connection:
            known = {} if progress is None else {"progress": _text(progress)}
            _update(connection, lease.run_id, renewals=runs.c.renewals + 1, seen_at=now, **known)
            wish = select(runs.c.wanted, runs.c.num_changes).where(runs.c.id == lease.run_id)
            return Wish(**connection.execute(wish).one()._mapping)

    def release(self, lease: Lease, *, now: float, due_at: float | None = None, detail: str | None = None) -> None:
        """Give up the lease of an unfinished run. A worker can claim the run again at once, or from ``due_at`` on.

        If a pause was requested, the run is paused. If an engine still runs a job of the run, a worker first has to end
        that job. ``detail`` replaces the run's stored explanation; None keeps it.
        """
        with self.holding(lease) as connection:
            said: dict[str, Any] = {} if detail is None else {"detail": detail}
            said |= {} if due_at is None else {"due_at": due_at}
            _update(connection, lease.run_id, owner=None, seen_at=now, **said)
            if connection.scalar(select(runs.c.wanted).where(runs.c.id == lease.run_id)) is Stop.PAUSE:
                run = self._read(connection.execute(_RUNS.where(runs.c.id == lease.run_id)).one())
                if not self._is_busy(connection, run):
                    self._pause(connection, run, now)

    def finish(self, lease: Lease, end: Finish, *, now: float, seen: int | None = None) -> bool:
        """End a run as ``end`` says and return True, or return False if its demand has changed.

        The demand is the part of the request that people may change while the run is active, such as the budget.
        ``seen`` is the version of the demand that the worker knows; None: the version does not matter. If people have
        changed the demand since that version, the run does not end.
        """
        with self.holding(lease) as connection:
            run = self._read(connection.execute(_RUNS.where(runs.c.id == lease.run_id)).one())
            if seen is not None and run.num_changes != seen:
                return False
            self._end(connection, run, end, now)
            return True

    @contextmanager
    def holding(self, lease: Lease) -> Iterator[Connection]:
        """Open a transaction in which a worker may write data of the run that it works on.

        It raises ``LeaseLost`` if another worker has taken over the run, or if the run has ended.
        """
        with writing(self._engine) as connection:
            hold(connection, lease)
            yield connection

    # ------------------------------------------------------------------ inside a transaction of this or another store
    def lock(self, connection: Connection, kind: str, run_id: str) -> Run:
        """Return a run and lock it. Nobody else can change the run until the transaction ends."""
        return self._get(connection, kind, run_id, is_locking=True)

    def add_ended(
        self, connection: Connection, new: NewRun, end: Finish, now: float, *, ended_at: float | None = None
    ) -> None:
        """Store a run whose result is already known, as if it had been queued at ``now`` and had ended at ``ended_at``.

        If ``ended_at`` is None, it is ``now``.
        """
        insert_run(connection, new, now)
        _write_end(connection, new.id, end, now if ended_at is None else ended_at, self._rows[new.kind])

    def change(self, connection: Connection, run: Run, demand: Any) -> None:
        """Change the demand of a locked run: the part of its request that people may change, such as the budget.

        The worker of the run gets the new demand when it renews its lease, and cannot finish the run before.
        """
        _update(connection, run.id, demand=_text(demand), num_changes=run.num_changes + 1)

    def queue_again(self, connection: Connection, run: Run, now: float, **values: Any) -> None:
        """Queue a run again that has finished and that this transaction has locked.

        ``values`` are further values for columns of the run's row, such as ``due_at``.
        """
        anew: dict[str, Any] = {"finished_at": None, "wanted": None, "problem": None, "result": None, **values}
        anew["idle_since"] = None if run.started_at is None else run.finished_at
        self._set_state(connection, run, RunState.QUEUED, now, num_reopened=run.num_reopened + 1, **anew)

    def _pause(self, connection: Connection, run: Run, now: float) -> None:
        lies_idle = now if run.idle_since is None else run.idle_since
        idle_since = None if run.started_at is None else lies_idle
        self._set_state(connection, run, RunState.PAUSED, now, owner=None, wanted=None, idle_since=idle_since)

    def _set_state(self, connection: Connection, run: Run, state: RunState, now: float, **values: Any) -> None:
        _update(connection, run.id, state=state, **values)
        self._rows[run.kind].on_state(connection, run.id, state, now)

    def _end(self, connection: Connection, run: Run, end: Finish, now: float) -> None:
        rows = self._rows[run.kind]
        _write_end(connection, run.id, rows.ended(run, end), now, rows)

    def _end_unread(self, connection: Connection, kind: str, run_id: str, problem: InvalidInput, now: float) -> None:
        detail = f"this release cannot read the stored {self._noun(kind)}: {problem}"
        problem_said = replace(Problem.of(problem), state={})
        end = Finish(state=RunState.FAILED, detail=detail, problem=problem_said)
        _write_end(connection, run_id, end, now, self._rows[kind])

    def _is_busy(self, connection: Connection, run: Run) -> bool:
        return run.lease is not None or self._rows[run.kind].has_jobs(connection, run)

    def _noun(self, kind: str) -> str:
        return self._rows[kind].noun or kind

    def _get(self, connection: Connection, kind: str, run_id: str, *, is_locking: bool = False) -> Run:
        if kind not in self._rows:
            raise NotFound(kind, run_id)
        run: Run = get_run(connection, self._rows[kind], run_id, is_locking=is_locking)
        return run

    def _read(self, row: AnyRow) -> Run:
        run: Run = read_run(self._rows[row.kind], row)
        return run


class Part:
    """Base class of the parts of ``Store``, such as ``RetuneStore``. Each of their methods is one transaction."""

    def __init__(self, engine: Engine, run_store: RunStore) -> None:
        self._engine = engine
        self._runs = run_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Facts about a run that can be read even if this release cannot decode its request, progress or result."""

    kind: str
    noun: str
    """Noun for such a run in messages."""
    subject: str
    created_by: str
    state: RunState
    scope: Scope
    """Scope that a caller needs to stop the run, unless the caller created it."""


def _name(kind: type[Run] | str) -> str:
    return kind if isinstance(kind, str) else kind_of(kind) or ""


def get_run(connection: Connection, known: Rows[R], run_id: str, *, is_locking: bool = False) -> R:
    """Return the run with a kind and an id. With ``is_locking``, nobody else can change it until the transaction ends.

    Raises:
        NotFound: No run of the kind has that id.
        Unreadable: Another release wrote the run, and this release cannot read it.
    """
    kind = _name(known.run)
    query = _RUNS.where(runs.c.id == run_id, runs.c.kind == kind)
    query = query.with_for_update(of=runs) if is_locking else query
    return read_run(known, one_row(connection, query, known.noun or kind, run_id))


def read_run(known: Rows[R], row: AnyRow) -> R:
    """Return the run in a row of ``runs``.

    Raises:
        Unreadable: Another release wrote the run, and this release cannot read it.
    """
    documents = {name: read_document(cls, text) for name, cls in _documents(known.run) if (text := row._mapping[name])}  # type: ignore[arg-type]  # a class is hashable
    return known.run(**{name: row._mapping[name] for name in _PLAIN}, **documents, lease=read_lease(row))


@cache
def _documents(cls: type[Run]) -> Sequence[tuple[str, type[Any]]]:
    """Return the name and the type of each document that runs of this class have."""
    hints = get_type_hints(cls)
    names = ("request", "progress", "demand", "result")
    return [(name, found) for name in names for found in dataclasses_in(hints[name])]


def hold(connection: Connection, lease: Lease) -> None:
    """Lock the run of a lease until the transaction ends, and check that the lease's worker still holds it.

    Raises:
        LeaseLost: Another worker has claimed the run, or the run has ended or was deleted.
    """
    holder = select(runs.c.owner, runs.c.claim).where(runs.c.id == lease.run_id).with_for_update()
    if connection.execute(holder).one_or_none() != (lease.owner, lease.claim):
        raise LeaseLost(lease.run_id, lease.owner)


def insert_run(connection: Connection, new: NewRun, now: float) -> None:
    """Insert a new run as queued. It is due at ``now`` unless the new run itself names another time."""
    documents = {name: _text(getattr(new, name)) for name in ("request", "progress", "demand")}
    due_at = now if new.due_at is None else new.due_at
    begins = {"state": RunState.QUEUED, "created_at": now, "due_at": due_at, "idle_s": 0.0, "detail": ""}
    zero = dict.fromkeys(("num_changes", "num_reopened", "claim", "renewals"), 0)
    values = {**values_of(new), **documents, **begins, **zero}
    connection.execute(insert(runs).values(values))


def read_lease(row: AnyRow) -> Lease | None:
    """Return the lease in a row of ``runs``, or None if no worker holds the run."""
    if row.owner is None:
        return None
    return Lease(run_id=row.id, owner=row.owner, claim=row.claim, renewals=row.renewals, lease_s=row.lease_s)


def another_request(noun: str, run_id: str) -> Conflict:
    """Return the error that says that an idempotency key was used before with a different request."""
    return Conflict(
        f"this idempotency key already made {noun} {run_id} from a different request; send a new key with a new request"
    )


def key_of_caller(kind: str, caller: Caller, key: str | None) -> str | None:
    """Return the form in which the idempotency key of a caller is stored, or None if the key is None.

    The stored form includes the kind of the run and the caller's name, so that equal keys of two callers differ. The
    separator is a line break, which no key in an HTTP header can contain.
    """
    own = f"{caller.name}\n{key}" if caller.name else key
    return None if key is None else f"{kind} {own}"


def select_runs(
    kinds: Collection[str],
    subject: str | None = None,
    parent_id: str | None = None,
    states: Collection[RunState] = (),
) -> AnySelect:
    """Return the query for runs of these kinds, newest first.

    A filter that is None or empty excludes nothing. For one kind, the database reads the rows in the order of an index,
    so it need not sort them.
    """
    query = _RUNS.where(runs.c.kind.in_(kinds))
    query = query if subject is None else query.where(runs.c.subject == subject)
    query = query if parent_id is None else query.where(runs.c.parent_id == parent_id)
    query = query.where(runs.c.state.in_(states)) if states else query
    return query.order_by(*NEWEST)


# Idle workers ask these many times a minute, and to build a query takes longer than to answer it.
_IS_OF_KINDS = runs.c.kind.in_(bindparam("kinds", expanding=True))

_HELD = select(runs.c.id, runs.c.owner, runs.c.claim, runs.c.renewals, runs.c.lease_s).where(
    runs.c.owner.is_not(None), _IS_OF_KINDS
)

_DUE: AnySelect = (
    select(runs.c.id)
    .where(_IS_OF_KINDS, runs.c.state.in_(OPEN), runs.c.awaits.is_(None), runs.c.due_at <= bindparam("now"))
    .order_by(runs.c.due_at, runs.c.created_at, runs.c.id)
    .limit(1)
)

_DUE_AND_FREE: AnySelect = _DUE.where(runs.c.owner.is_(None))


def select_due(lapsed: Collection[Lease] = ()) -> AnySelect:
    """Return the query for the id of the run that has been due longest, among the runs that no worker holds.

    A run whose lease is in ``lapsed`` counts as free. The parameters of the query are ``kinds`` and ``now``.
    """
    return _DUE.where(or_(runs.c.owner.is_(None), *map(_is_still, lapsed))) if lapsed else _DUE_AND_FREE


def _select_awaited(run_id: str) -> AnySelect:
    awaited = runs.alias("awaited")
    return (
        select(awaited.c.id, awaited.c.kind)
        .join_from(runs, awaited, awaited.c.id == runs.c.awaits)
        .where(runs.c.id == run_id)
    )


def _update(connection: Connection, run_id: str, **values: Any) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))


def _write_end(connection: Connection, run_id: str, end: Finish, now: float, rows: Rows[Any]) -> None:
    said = {"detail": end.detail, "result": _text(end.result), "problem": end.problem, "finished_at": now}
    wanted = case((runs.c.wanted == Stop.PAUSE, None), else_=runs.c.wanted)
    _update(connection, run_id, state=end.state, owner=None, wanted=wanted, **said, **_taken_up(now))
    _free_parent(connection, run_id)
    rows.on_end(connection, run_id, end, now)


def _free_parent(connection: Connection, run_id: str) -> None:
    """Let workers take the parent of this ended run, which has waited for it."""
    ended = runs.alias("ended")
    parent_id = select(ended.c.parent_id).where(ended.c.id == run_id).scalar_subquery()
    connection.execute(update(runs).where(runs.c.id == parent_id, runs.c.awaits == run_id).values(awaits=None))


def _taken_up(now: float) -> dict[str, Any]:
    """Return the new column values of a run that stops being idle."""
    idle_s = case((runs.c.idle_since < now, now - runs.c.idle_since), else_=0.0)
    return {"idle_since": None, "idle_s": runs.c.idle_s + idle_s}


_PLAIN = (
    *("id", "kind", "state", "subject", "created_by", "created_at", "due_at", "started_at", "finished_at"),
    *("detail", "problem", "wanted", "num_changes", "idle_since", "idle_s", "num_reopened"),
    *("parent_id", "child_id", "awaits"),
)


def _text(value: Any) -> str | None:
    return None if value is None else codec.dumps(value)


def _is_still(lease: Lease) -> ColumnElement[bool]:
    return and_(
        runs.c.id == lease.run_id,
        runs.c.owner == lease.owner,
        runs.c.claim == lease.claim,
        runs.c.renewals == lease.renewals,
    )
