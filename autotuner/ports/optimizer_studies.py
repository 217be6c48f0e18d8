"""OptimizerStudyStore: optimizer studies and their trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import Lease, Run
from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial


class OptimizerStudyStore(Protocol):
    """Optimizer studies, which are runs, and their trials; every method is one transaction, as in ``Store``."""

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
        ...

    def trials(self, study_id: str) -> Sequence[OptimizerTrial]:
        """All of a study, by number."""
        ...

    def save_trial(self, trial: OptimizerTrial, lease: Lease) -> None:
        """Store a trial, new or in the place of what it was; ``LeaseLost`` where another worker has the study."""
        ...
