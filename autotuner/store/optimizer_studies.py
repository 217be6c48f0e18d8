"""Optimizer studies and their trials on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, Engine, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import HeldLease
from autotuner.core.study import OptimizerStudy, OptimizerStudyRequest, OptimizerTrial, StudyState
from autotuner.ports import Page
from autotuner.store import leases, records
from autotuner.store.engine import reading, writing
from autotuner.store.identity import new_optimizer_study_id
from autotuner.store.queueing import key_of_caller
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import optimizer_studies, optimizer_trials

_STUDIES: AnySelect = select(*(optimizer_studies.c[field.name] for field in fields(OptimizerStudy))).select_from(
    optimizer_studies
)

_ASKED = ("id", "request", "created_at", "created_by")
"""What never changes."""


class SqlOptimizerStudies:
    """The OptimizerStudyStore port: each write locks the study's row first (SQLite: the database)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self,
        request: OptimizerStudyRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[OptimizerStudy, bool]:
        key = key_of_caller(caller, idempotency_key)
        with writing(self._engine) as connection:
            if (found := _made_before(connection, request, key)) is not None:
                return found, False
            study = OptimizerStudy(
                id=new_optimizer_study_id(),
                request=request,
                state=StudyState.QUEUED,
                created_at=now,
                created_by=caller.name,
            )
            connection.execute(insert(optimizer_studies).values(idempotency_key=key, **_values(study)))
            return study, True

    def get(self, study_id: str) -> OptimizerStudy:
        with reading(self._engine) as connection:
            return _one(connection, _STUDIES, study_id)

    def list(self, *, page: Page = Page()) -> tuple[Sequence[OptimizerStudy], int]:
        newest_first = _STUDIES.order_by(optimizer_studies.c.created_at.desc(), optimizer_studies.c.id.desc())
        with reading(self._engine) as connection:
            rows, total = records.window(connection, newest_first, page)
        return [_read(row) for row in rows], total

    def trials(self, study_id: str) -> Sequence[OptimizerTrial]:
        mine = select(optimizer_trials.c.document).where(optimizer_trials.c.study_id == study_id)
        with reading(self._engine) as connection:
            _one(connection, _STUDIES, study_id)
            return connection.scalars(mine.order_by(optimizer_trials.c.number)).all()

    def request_cancel(self, study_id: str, *, now: float) -> OptimizerStudy:
        with writing(self._engine) as connection:
            study = _locked(connection, study_id)
            if study.state.finished:
                return study
            asked = replace(study, cancel_requested=True)
            if study.state is StudyState.QUEUED:
                asked = _ended(asked, StudyState.CANCELLED, "cancelled before it began", now)
            return _save(connection, asked)

    # ------------------------------------------------------------------ a worker's
    def held(self) -> Sequence[HeldLease]:
        with reading(self._engine) as connection:
            return leases.OPTIMIZER_STUDIES.held(connection)

    def claim(
        self, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease] = ()
    ) -> OptimizerStudy | None:
        is_free = or_(optimizer_studies.c.state == StudyState.QUEUED, leases.OPTIMIZER_STUDIES.is_left(lapsed))
        oldest = (
            select(optimizer_studies.c.id)
            .where(is_free)
            .order_by(optimizer_studies.c.created_at, optimizer_studies.c.id)
            .limit(1)
        )
        with writing(self._engine) as connection:
            study_id = connection.scalar(oldest.with_for_update(skip_locked=True))
            if study_id is None:
                return None
            study = _one(connection, _STUDIES, study_id)
            started_at = now if study.started_at is None else study.started_at
            claimed = replace(study, state=StudyState.RUNNING, owner=owner, started_at=started_at)
            return _save(connection, _renewed(claimed, now, lease_s))

    def renew(self, study_id: str, *, owner: str, now: float, lease_s: float) -> OptimizerStudy:
        with writing(self._engine) as connection:
            return _save(connection, _renewed(_held(connection, study_id, owner), now, lease_s))

    def save_trial(self, trial: OptimizerTrial, *, owner: str, now: float, lease_s: float) -> OptimizerStudy:
        with writing(self._engine) as connection:
            study = _held(connection, trial.study_id, owner)
            upsert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            new = upsert(optimizer_trials).values(study_id=trial.study_id, number=trial.number, document=trial)
            changed = new.on_conflict_do_update(index_elements=["study_id", "number"], set_={"document": trial})
            connection.execute(changed)
            return _save(connection, _renewed(study, now, lease_s))

    def release(self, study_id: str, *, owner: str, now: float) -> None:
        with writing(self._engine) as connection:
            _save(connection, replace(_held(connection, study_id, owner), owner=None, lease_until=now))

    def finish(self, study_id: str, state: StudyState, detail: str, *, owner: str, now: float) -> OptimizerStudy:
        with writing(self._engine) as connection:
            return _save(connection, _ended(_held(connection, study_id, owner), state, detail, now))


# ---------------------------------------------------------------------- on a connection
def _made_before(connection: Connection, request: OptimizerStudyRequest, key: str | None) -> OptimizerStudy | None:
    if key is None:
        return None
    row = connection.execute(_STUDIES.where(optimizer_studies.c.idempotency_key == key)).one_or_none()
    if row is None:
        return None
    study = _read(row)
    if study.request != request:
        raise Conflict(
            f"this idempotency key made study {study.id} of another request; send a new key with a new request"
        )
    return study


def _locked(connection: Connection, study_id: str) -> OptimizerStudy:
    return _one(connection, _STUDIES.with_for_update(), study_id)


def _held(connection: Connection, study_id: str, owner: str) -> OptimizerStudy:
    study = _locked(connection, study_id)
    if study.owner != owner:
        raise LeaseLost(study_id, owner)
    return study


def _one(connection: Connection, query: AnySelect, study_id: str) -> OptimizerStudy:
    row = connection.execute(query.where(optimizer_studies.c.id == study_id)).one_or_none()
    if row is None:
        raise NotFound("optimizer study", study_id)
    return _read(row)


def _save(connection: Connection, study: OptimizerStudy) -> OptimizerStudy:
    changed = {name: value for name, value in _values(study).items() if name not in _ASKED}
    connection.execute(update(optimizer_studies).where(optimizer_studies.c.id == study.id).values(changed))
    return study


def _read(row: AnyRow) -> OptimizerStudy:
    return OptimizerStudy(**row._mapping)


def _values(study: OptimizerStudy) -> dict[str, Any]:
    return {field.name: getattr(study, field.name) for field in fields(study)}


def _renewed(study: OptimizerStudy, now: float, lease_s: float) -> OptimizerStudy:
    return replace(study, renewals=study.renewals + 1, lease_until=now + lease_s, lease_s=lease_s)


def _ended(study: OptimizerStudy, state: StudyState, detail: str, now: float) -> OptimizerStudy:
    if not state.finished:
        raise InvalidInput("state", state.value, "must be an end: complete, failed or cancelled", "complete")
    return replace(study, state=state, detail=detail, finished_at=now, owner=None, lease_until=None)
