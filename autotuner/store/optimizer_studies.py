"""Optimizer studies and their trials on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import Lease, NewRun, Run
from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial
from autotuner.store.descriptions import new_id
from autotuner.store.engine import reading, upsert
from autotuner.store.runs import Part, key_of_caller
from autotuner.store.tables import study_trials


class OptimizerStudyStore(Part):
    """The store of optimizer studies (durable runs that compare optimizers) and of their trials."""

    def create(
        self,
        request: OptimizerStudyRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[Run, bool]:
        """Queue a new optimizer study and return it with True, or return a stored study with False.

        A stored study is returned if the same caller created it with the same idempotency key and an equal request.

        Raises:
            Conflict: The caller used the key before with a different request.
        """
        key = key_of_caller("study", caller, idempotency_key)
        new = NewRun(id=new_id("os"), kind="study", request=request, created_by=caller.name, unique_key=key)
        return self._runs.add(new, now=now)

    def trials(self, study_id: str) -> Sequence[OptimizerTrial]:
        """Return all trials of an optimizer study, ordered by number. Each trial trained one optimizer candidate."""
        self._runs.get("study", study_id)
        mine = select(study_trials.c.document).where(study_trials.c.run_id == study_id)
        with reading(self._engine) as connection:
            return connection.scalars(mine.order_by(study_trials.c.number)).all()

    def save_trial(self, trial: OptimizerTrial, lease: Lease) -> None:
        """Store a new trial of an optimizer study, or replace the stored version of the trial.

        Raise ``LeaseLost`` if another worker has the study.
        """
        values = {"run_id": trial.study_id, "number": trial.number, "document": trial}
        with self._runs.holding(lease) as connection:
            upsert(connection, study_trials, ["run_id", "number"], values)
