"""CheckWorker: takes checks of clusters by lease, one after the other, and sees each to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from threading import Event as Flag

import structlog

from autotuner.core.cluster_check import CheckState, ClusterCheck
from autotuner.core.errors import LeaseLost, StoreUnavailable
from autotuner.launch.checks.hold import Hold
from autotuner.launch.checks.run import CheckRun
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.lease_watch import LeaseWatch
from autotuner.ports import Clock, Store
from autotuner.tracing import working_on

_log = structlog.get_logger(__name__)


class CheckWorker:
    """Runs checks until told to stop, beside the worker that runs sweeps: a check waits for nobody's sweep.

    Args:
        launchers: Of the engines that are registered here, by name.
        owner: Name of this worker, unique among all that share the store.
        lease_s: For how long a worker may be silent before another takes its sweep over; of a check somewhat longer.
        shutdown: Set it to leave the running jobs alone, give the check back and return.
    """

    def __init__(
        self,
        store: Store,
        launchers: Mapping[str, EngineLauncher],
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        shutdown: Flag | None = None,
    ) -> None:
        self._store = store
        self._launchers = launchers
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._shutdown = shutdown or Flag()
        self._watch = LeaseWatch(clock, owner=owner, lease_s=Hold.lasting(lease_s))

    def run_once(self) -> bool:
        """Take one check and run it to its end; False if there is none to take."""
        lapsed, lease_s = self._watch.lapsed(self._store.held_checks), Hold.lasting(self._lease_s)
        check = self._store.claim_check(owner=self._owner, now=self._clock.now(), lease_s=lease_s, lapsed=lapsed)
        if check is None:
            return False
        with working_on("check.run", check_id=check.id, worker=self._owner, caller=check.created_by):
            self._see_to_its_end(check)
        return True

    def _see_to_its_end(self, check: ClusterCheck) -> None:
        hold = Hold(self._store, self._clock, check, owner=self._owner, lease_s=self._lease_s, shutdown=self._shutdown)
        try:
            CheckRun(hold, self._store, self._launchers, self._shutdown).run()
        except LeaseLost:
            _log.warning("check.lease_lost")
        except StoreUnavailable:
            raise
        except Exception as error:  # a bug must end this check with its reason, not the worker and what waits
            _log.exception("check.error")
            with contextlib.suppress(LeaseLost):
                hold.finish(CheckState.FAILED, f"{type(error).__name__}: {error}")
