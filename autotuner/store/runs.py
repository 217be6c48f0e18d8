"""RunStore: the queue of durable runs on SQLite and PostgreSQL.

Every public method that takes no connection is one transaction. What a worker writes goes through ``holding``, which
locks the run and refuses a worker whose lease was taken over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.announcement import Announcement, DeliveryProgress
from autotuner.core.cluster_check import CheckFindings, ClusterCheck
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import OPEN, Finish, Lease, NewRun, Problem, Run, RunState, Stop
from autotuner.core.study import OptimizerStudyRequest
from autotuner.ports import Page
from autotuner.search.planning.plan import Plan, PlanProgress
from autotuner.search.planning.request import PlanRequest
from autotuner.store import records
from autotuner.store.engine import reading, writing
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import runs
from autotuner.store.tables.columns import read_document

_RUNS: AnySelect = select(*runs.columns).select_from(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentTypes:
    """The types of the documents of a kind of run."""

    request: type[Any]
    progress: type[Any] | None = None
    result: type[Any] | None = None


DOCUMENTS: Mapping[str, DocumentTypes] = {
    "delivery": DocumentTypes(request=Announcement, progress=DeliveryProgress),
    "check": DocumentTypes(request=ClusterCheck, progress=CheckFindings),
    "study": DocumentTypes(request=OptimizerStudyRequest),
    "plan": DocumentTypes(request=PlanRequest, progress=PlanProgress, result=Plan),
}
"""The types of the documents of each kind, by its name."""

_NOUNS = {"study": "optimizer study"}
"""What people call runs of a kind, where that is not the name of the kind."""


class RunStore:
    """Durable runs, whatever their kind."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ------------------------------------------------------------------ callers
    def add(self, new: NewRun, *, now: float) -> tuple[Run, bool]:
        """Queue a run and return it with True, or return the run of the same id or unique key with False.

        Raises:
            Conflict: The key belongs to another request.
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
            found = _read(connection.execute(_RUNS.where(runs.c.kind == new.kind, same)).one())
        if found.request != new.request:
            raise Conflict(
                f"this idempotency key made {new.kind} {found.id} of another request; send a new key with a new request"
            )
        return found

    def get(self, kind: str, run_id: str) -> Run:
        """Return a run as it stands now.

        Raises:
            NotFound: No run of the kind has that id.
            Unreadable: Another release wrote it.
        """
        with reading(self._engine) as connection:
            return _get(connection, kind, run_id)

    def list(
        self,
        kind: str,
        *,
        subject: str | None = None,
        states: Collection[RunState] = (),
        page: Page = Page(),
    ) -> tuple[Sequence[Run], int]:
        """Return the runs of a kind, newest first, and how many there are in all.

        Args:
            kind: Of the runs.
            subject: Only runs of this subject.
            states: Only runs in one of these states; empty: in any.
            page: Which of them.
        """
        with reading(self._engine) as connection:
            rows, total = records.window(connection, select_runs(kind, subject, states), page)
        return [_read(row) for row in rows], total

    def reopen(self, kind: str, run_id: str, progress: Any, *, now: float) -> Run:
        """Queue a finished run again: a plan that failed, a delivery that was given up.

        Raises:
            NotFound: No run of the kind has that id.
            Conflict: The run is not finished.
        """
        with writing(self._engine) as connection:
            run = _get(connection, kind, run_id, is_locking=True)
            if not run.state.is_finished:
                raise Conflict(f"{kind} {run_id} is {run.state.value}; it goes on already")
            anew = {"state": RunState.QUEUED, "due_at": now, "finished_at": None, "wanted": None, "problem": None}
            _update(connection, run_id, **anew, progress=_text(progress), result=None)
            return _get(connection, kind, run_id)

    def cancel(self, kind: str, run_id: str, detail: str, *, now: float) -> Run:
        """Ask for the end of a run, which its worker brings about, and end a run that no worker has begun with at once.

        A finished run stays as it is.

        Args:
            kind: Of the run.
            run_id: Its id.
            detail: How a run ends that no worker has begun with.
            now: Epoch seconds.

        Raises:
            NotFound: No run of the kind has that id.
        """
        with writing(self._engine) as connection:
            run = _get(connection, kind, run_id, is_locking=True)
            if not run.state.is_finished:
                _update(connection, run_id, wanted=Stop.CANCEL, due_at=now)
            if run.state is RunState.QUEUED:
                _end(connection, run_id, Finish(state=RunState.CANCELLED, detail=detail), now)
            return _get(connection, kind, run_id)

    # ------------------------------------------------------------------ workers
    def leases(self, kinds: Collection[str]) -> Sequence[Lease]:
        """Return all leases that are held on runs of these kinds."""
        held = _RUNS.where(runs.c.owner.is_not(None), runs.c.kind.in_(kinds))
        with reading(self._engine) as connection:
            return [_lease(row) for row in connection.execute(held)]

    def claim(
        self, kinds: Collection[str], *, owner: str, now: float, lease_s: float, lapsed: Collection[Lease] = ()
    ) -> Run | None:
        """Give the run that is due longest to a worker, or None. Each run is given to one worker only.

        Args:
            kinds: That the worker can run.
            owner: Name of the worker.
            now: Epoch seconds.
            lease_s: Seconds that the worker may be silent.
            lapsed: Leases that this worker has watched stand still. One that was renewed since is left alone.
        """
        oldest = select_due(kinds, now, lapsed)
        with reading(self._engine) as connection:  # workers look often, and looking must not lock
            if connection.scalar(oldest) is None:
                return None
        with writing(self._engine) as connection:
            while (run_id := connection.scalar(oldest.with_for_update(skip_locked=True))) is not None:
                signs = {"claim": runs.c.claim + 1, "renewals": runs.c.renewals + 1, "owner": owner, "lease_s": lease_s}
                started_at = func.coalesce(runs.c.started_at, now)
                try:
                    _read(connection.execute(_RUNS.where(runs.c.id == run_id)).one())
                except InvalidInput as problem:  # written by another release: it holds up no other run
                    _end(connection, run_id, unread(problem), now)
                    continue
                _update(connection, run_id, state=RunState.RUNNING, started_at=started_at, **signs)
                return _read(connection.execute(_RUNS.where(runs.c.id == run_id)).one())
            return None

    def renew(self, lease: Lease, progress: Any = None) -> Stop | None:
        """Say that the worker is alive, store how far it is, and return what people want of the run.

        Raises:
            LeaseLost: As ``holding``; so do all writes of a worker.
        """
        with self.holding(lease) as connection:
            known = {} if progress is None else {"progress": _text(progress)}
            _update(connection, lease.run_id, renewals=runs.c.renewals + 1, **known)
            return connection.scalar(select(runs.c.wanted).where(runs.c.id == lease.run_id))

    def release(self, lease: Lease, *, now: float, due_at: float | None = None, detail: str | None = None) -> None:
        """Give an unfinished run back, to be taken up at once or at a later time."""
        with self.holding(lease) as connection:
            said = {} if detail is None else {"detail": detail}
            _update(connection, lease.run_id, owner=None, due_at=now if due_at is None else due_at, **said)

    def finish(self, lease: Lease, end: Finish, *, now: float) -> None:
        """End a run."""
        with self.holding(lease) as connection:
            _end(connection, lease.run_id, end, now)

    @contextmanager
    def holding(self, lease: Lease) -> Iterator[Connection]:
        """Open a transaction in which a worker may write what belongs to its run.

        Raises:
            LeaseLost: Another worker has claimed the run, or it has ended or is gone.
        """
        with writing(self._engine) as connection:
            holder = select(runs.c.owner, runs.c.claim).where(runs.c.id == lease.run_id).with_for_update()
            if connection.execute(holder).one_or_none() != (lease.owner, lease.claim):
                raise LeaseLost(lease.run_id, lease.owner)
            yield connection


# ---------------------------------------------------------------------- inside a transaction, also of other stores
def insert_run(connection: Connection, new: NewRun, now: float) -> None:
    """Queue a run."""
    values = {
        "id": new.id,
        "kind": new.kind,
        "state": RunState.QUEUED,
        "subject": new.subject,
        "unique_key": new.unique_key,
        "parent_id": new.parent_id,
        "created_by": new.created_by,
        "created_at": now,
        "due_at": now if new.due_at is None else new.due_at,
        "request": codec.dumps(new.request),
        "progress": _text(new.progress),
        "detail": "",
        "claim": 0,
        "renewals": 0,
    }
    connection.execute(insert(runs).values(values))


def select_runs(kind: str, subject: str | None = None, states: Collection[RunState] = ()) -> AnySelect:
    """Return the query of a list, in the order of an index."""
    query = _RUNS.where(runs.c.kind == kind)
    query = query if subject is None else query.where(runs.c.subject == subject)
    query = query.where(runs.c.state.in_(states)) if states else query
    return query.order_by(runs.c.created_at.desc(), runs.c.id.desc())


def select_due(kinds: Collection[str], now: float, lapsed: Collection[Lease] = ()) -> AnySelect:
    """Return the query for the id of the run that is due longest and that nobody holds."""
    is_free = or_(runs.c.owner.is_(None), *map(_is_still, lapsed))
    is_due = runs.c.kind.in_(kinds) & runs.c.state.in_(OPEN) & (runs.c.due_at <= now)
    query: AnySelect = select(runs.c.id).where(is_due, is_free)
    return query.order_by(runs.c.due_at, runs.c.created_at, runs.c.id).limit(1)


def unread(problem: InvalidInput) -> Finish:
    """Return the end of a run that this release cannot read."""
    detail = f"this release cannot read what is stored of the run: {problem}"
    return Finish(state=RunState.FAILED, detail=detail, problem=replace(Problem.of(problem), state={}))


def _get(connection: Connection, kind: str, run_id: str, *, is_locking: bool = False) -> Run:
    query = _RUNS.where(runs.c.id == run_id, runs.c.kind == kind)
    row = connection.execute(query.with_for_update() if is_locking else query).one_or_none()
    if row is None:
        raise NotFound(_NOUNS.get(kind, kind), run_id)
    return _read(row)


def _update(connection: Connection, run_id: str, **values: Any) -> None:
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))


def _end(connection: Connection, run_id: str, end: Finish, now: float) -> None:
    said = {"detail": end.detail, "result": _text(end.result), "problem": end.problem, "finished_at": now}
    _update(connection, run_id, state=end.state, owner=None, **said)


def _read(row: AnyRow) -> Run:
    known = DOCUMENTS[row.kind]
    return Run(
        **{name: row._mapping[name] for name in _PLAIN},
        request=read_document(known.request, row.request),
        progress=_value(known.progress, row.progress),
        result=_value(known.result, row.result),
        lease=None if row.owner is None else _lease(row),
    )


_PLAIN = (
    *("id", "kind", "state", "subject", "created_by", "created_at", "due_at", "started_at", "finished_at"),
    *("detail", "problem", "wanted"),
)


def _text(value: Any) -> str | None:
    return None if value is None else codec.dumps(value)


def _value(cls: type[Any] | None, text: str | None) -> Any:
    return None if cls is None or text is None else read_document(cls, text)


def _lease(row: AnyRow) -> Lease:
    return Lease(run_id=row.id, owner=row.owner, claim=row.claim, renewals=row.renewals, lease_s=row.lease_s)


def _is_still(lease: Lease) -> ColumnElement[bool]:
    return and_(
        runs.c.id == lease.run_id,
        runs.c.owner == lease.owner,
        runs.c.claim == lease.claim,
        runs.c.renewals == lease.renewals,
    )
