"""Optimizer studies and their trials on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, select
from sqlalchemy.dialects import postgresql, sqlite

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import Lease, NewRun, Run
from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial
from autotuner.store.engine import reading
from autotuner.store.identity import new_optimizer_study_id
from autotuner.store.queueing import key_of_caller
from autotuner.store.runs import RunStore
from autotuner.store.tables import optimizer_trials


class SqlOptimizerStudies:
    """The OptimizerStudyStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runs = RunStore(engine)

    def create(
        self,
        request: OptimizerStudyRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[Run, bool]:
        key = key_of_caller(caller, idempotency_key)
        new = NewRun(
            id=new_optimizer_study_id(),
            kind="study",
            request=request,
            created_by=caller.name,
            unique_key=None if key is None else f"study {key}",
        )
        return self._runs.add(new, now=now)

    def trials(self, study_id: str) -> Sequence[OptimizerTrial]:
        self._runs.get("study", study_id)
        mine = select(optimizer_trials.c.document).where(optimizer_trials.c.study_id == study_id)
        with reading(self._engine) as connection:
            return connection.scalars(mine.order_by(optimizer_trials.c.number)).all()

    def save_trial(self, trial: OptimizerTrial, lease: Lease) -> None:
        with self._runs.holding(lease) as connection:
            upsert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            new = upsert(optimizer_trials).values(study_id=trial.study_id, number=trial.number, document=trial)
            changed = new.on_conflict_do_update(index_elements=["study_id", "number"], set_={"document": trial})
            connection.execute(changed)
