"""Optimizer studies and their trials on SQLite and PostgreSQL."""

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


class OptimizerStudyStore:
    """Optimizer studies, which are runs, and their trials; every method is one transaction, as in ``Store``."""

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
        """Queue a study; or the one that the caller's key made before of this request, and False.

        Raises:
            Conflict: The key made one of another request.
        """
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
        """All of a study, by number."""
        self._runs.get("study", study_id)
        mine = select(optimizer_trials.c.document).where(optimizer_trials.c.study_id == study_id)
        with reading(self._engine) as connection:
            return connection.scalars(mine.order_by(optimizer_trials.c.number)).all()

    def save_trial(self, trial: OptimizerTrial, lease: Lease) -> None:
        """Store a trial, new or in the place of what it was; ``LeaseLost`` where another worker has the study."""
        with self._runs.holding(lease) as connection:
            upsert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            new = upsert(optimizer_trials).values(study_id=trial.study_id, number=trial.number, document=trial)
            changed = new.on_conflict_do_update(index_elements=["study_id", "number"], set_={"document": trial})
            connection.execute(changed)
