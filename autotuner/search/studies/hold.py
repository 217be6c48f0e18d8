"""StudyHold: a worker's hold on one study: every write goes through it, and renews its lease."""

from __future__ import annotations

from threading import Event as Flag

import structlog

from autotuner.core.errors import LeaseLost, StoreUnavailable
from autotuner.core.study import OptimizerStudy, OptimizerTrial, StudyState
from autotuner.ports import Clock, OptimizerStudyStore

_LEASES = 4.0
"""Leases of sweeps that one of a study lasts: nothing renews it while ranks start, or an engine ends a job."""

_REFRESH_S = 1.0
"""How long a request to cancel may go unseen, a step unstored, and a store that is away is left in peace."""

_log = structlog.get_logger(__name__)


class StudyHold:
    """What a worker may do with a study while it holds it.

    What happens while the store is away is stored with what comes next.

    Args:
        study: As it was claimed, just now.
        owner: Name of the worker.
        lease_s: For how long a worker may be silent before another takes its sweep over.
        shutdown: Set when the worker is told to stop; ends waiting for a store that is away.

    Attributes:
        study: As this worker last knew it.
        is_lost: Whether another worker was seen to hold it.
    """

    def __init__(
        self,
        store: OptimizerStudyStore,
        clock: Clock,
        study: OptimizerStudy,
        *,
        owner: str,
        lease_s: float,
        shutdown: Flag,
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._lease_s = self.lasting(lease_s)
        self._shutdown = shutdown
        self._stored_at = clock.monotonic()
        self.study = study
        self.is_lost = False

    @staticmethod
    def lasting(lease_s: float) -> float:
        """What a study is claimed for."""
        return _LEASES * lease_s

    def now(self) -> float:
        """Epoch seconds."""
        return self._clock.now()

    def is_due(self) -> bool:
        """Whether the store has heard nothing for a while."""
        return self._clock.monotonic() - self._stored_at >= _REFRESH_S

    def follow(self, trial: OptimizerTrial) -> None:
        """Store a running trial as it is; its ranks are not ended because a store was away."""
        self._stored_at = self._clock.monotonic()
        try:
            self._save(trial)
        except LeaseLost:
            self.is_lost = True
        except StoreUnavailable as error:
            _log.warning("study.store_unavailable", error=str(error))

    def keep(self, trial: OptimizerTrial) -> None:
        """Store a trial that begins or has ended, as often as it takes.

        Raises:
            LeaseLost: Another worker holds the study.
        """
        while True:
            try:
                return self._save(trial)
            except StoreUnavailable as error:
                _log.warning("study.store_unavailable", error=str(error))
                if self._shutdown.is_set():
                    raise
                self._clock.sleep(_REFRESH_S)

    def finish(self, state: StudyState, detail: str) -> None:
        """Store the end; ``LeaseLost`` where another worker holds the study."""
        self.study = self._store.finish(self.study.id, state, detail, owner=self._owner, now=self.now())
        _log.info("study.finished", state=state.value, detail=detail)

    def release(self) -> None:
        """Give the study back unfinished."""
        self._store.release(self.study.id, owner=self._owner, now=self.now())

    def _save(self, trial: OptimizerTrial) -> None:
        self.study = self._store.save_trial(trial, owner=self._owner, now=self.now(), lease_s=self._lease_s)
