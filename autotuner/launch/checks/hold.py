"""A worker's hold on one check: every write goes through it, and renews its lease."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Flag
from typing import Any

import structlog

from autotuner.core.cluster_check import CheckState, ClusterCheck
from autotuner.core.errors import LeaseLost, StoreUnavailable
from autotuner.core.trial import EngineJob
from autotuner.ports import Clock, Store

_LEASES = 4.0
"""Leases of sweeps that one of a check lasts: nothing renews it while an engine takes its time to end a job."""

_REFRESH_S = 1.0
"""How long a request to cancel may go unseen, and a store that is away is left in peace."""

_log = structlog.get_logger(__name__)


class Hold:
    """What a worker may do with a check while it holds it.

    What is said or found while the store is away is stored with what comes next.

    Args:
        check: As it was claimed, just now.
        owner: Name of the worker.
        lease_s: For how long a worker may be silent before another takes its sweep over.
        shutdown: Set when the worker is told to stop; ends waiting for a store that is away.

    Attributes:
        check: As this worker last knew it.
        is_lost: Whether another worker was seen to hold it.
    """

    def __init__(
        self, store: Store, clock: Clock, check: ClusterCheck, *, owner: str, lease_s: float, shutdown: Flag
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._lease_s = self.lasting(lease_s)
        self._shutdown = shutdown
        self._stored_at = clock.monotonic()
        self.check = check
        self.is_lost = False

    @staticmethod
    def lasting(lease_s: float) -> float:
        """What a check is claimed for."""
        return _LEASES * lease_s

    def now(self) -> float:
        """Epoch seconds."""
        return self._clock.now()

    def say(self, text: str) -> None:
        """Add a line."""
        self.check = replace(self.check, findings=self.check.findings.said(text, self.now()))
        self._save()

    def found(self, **changes: Any) -> None:
        """Store what was found."""
        self.check = replace(self.check, findings=replace(self.check.findings, **changes))
        self._save()

    def placed(self, job: EngineJob) -> None:
        """Store how a job stands: by it the check goes on after an interruption."""
        self.found(jobs=self.check.findings.with_job(job).jobs)

    def refresh(self) -> None:
        """Renew the lease where that is due, and hear whether the end was asked for."""
        if self._clock.monotonic() - self._stored_at >= _REFRESH_S:
            self._save()

    def finish(self, state: CheckState, text: str) -> None:
        """Store the end with its last line, as often as it takes.

        Raises:
            LeaseLost: Another worker holds the check.
        """
        findings = self.check.findings.said(text, self.now())
        while True:
            try:
                self.check = self._store.finish_check(self.check.id, state, findings, owner=self._owner, now=self.now())
            except StoreUnavailable as error:
                _log.warning("check.store_unavailable", check_id=self.check.id, error=str(error))
                if self._shutdown.is_set():
                    raise
                self._clock.sleep(_REFRESH_S)
            else:
                _log.info("check.finished", check_id=self.check.id, state=state.value, detail=text)
                return

    def release(self) -> None:
        """Give the check back unfinished."""
        self._store.release_check(self.check.id, owner=self._owner, now=self.now())

    def _save(self) -> None:
        """Store the findings as they are; a job must not be ended because its worker lost the check."""
        self._stored_at = self._clock.monotonic()
        try:
            self.check = self._store.save_findings(
                self.check.id, self.check.findings, owner=self._owner, now=self.now(), lease_s=self._lease_s
            )
        except LeaseLost:
            self.is_lost = True
        except StoreUnavailable as error:
            _log.warning("check.store_unavailable", check_id=self.check.id, error=str(error))
