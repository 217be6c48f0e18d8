"""OptimizerStudyStore: optimizer studies, their trials, and who works on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import HeldLease
from autotuner.core.study import OptimizerStudy, OptimizerStudyRequest, OptimizerTrial, StudyState
from autotuner.ports.page import Page


class OptimizerStudyStore(Protocol):
    """Optimizer studies; every method is one transaction, as in ``Store``.

    What a worker writes names its ``owner``, and raises ``LeaseLost`` where another has taken the study over.
    """

    def create(
        self,
        request: OptimizerStudyRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[OptimizerStudy, bool]:
        """Queue a study; or the one that the caller's key made before of this request, and False.

        Raises:
            Conflict: The key made one of another request.
        """
        ...

    def get(self, study_id: str) -> OptimizerStudy:
        """As it stands now."""
        ...

    def list(self, *, page: Page = Page()) -> tuple[Sequence[OptimizerStudy], int]:
        """Newest first, and how many there are in all."""
        ...

    def trials(self, study_id: str) -> Sequence[OptimizerTrial]:
        """All of a study, by number."""
        ...

    def request_cancel(self, study_id: str, *, now: float) -> OptimizerStudy:
        """Ask for the end: of a study that a worker has begun with it comes by a worker, of another at once."""
        ...

    # ------------------------------------------------------------------ a worker's
    def held(self) -> Sequence[HeldLease]:
        """The lease of every study that somebody holds, as ``Store.held_sweeps`` has them of sweeps."""
        ...

    def claim(
        self, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease] = ()
    ) -> OptimizerStudy | None:
        """Give the oldest study that waits for a worker to ``owner``; None if there is none. As ``claim_sweep``."""
        ...

    def renew(self, study_id: str, *, owner: str, now: float, lease_s: float) -> OptimizerStudy:
        """A sign of life; the study comes back, cancel request included."""
        ...

    def save_trial(self, trial: OptimizerTrial, *, owner: str, now: float, lease_s: float) -> OptimizerStudy:
        """Store a trial, new or in the place of what it was, which is a sign of life, too."""
        ...

    def release(self, study_id: str, *, owner: str, now: float) -> None:
        """Give the study back unfinished: anybody may claim it at once."""
        ...

    def finish(self, study_id: str, state: StudyState, detail: str, *, owner: str, now: float) -> OptimizerStudy:
        """End the study, which nobody holds then."""
        ...
