"""Worker: takes sweeps by lease, one after the other, and sees each to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from threading import Event as Flag

import structlog

from autotuner.core.errors import LeaseLost, StoreUnavailable
from autotuner.core.run import HeldLease, StopReason, SweepEnd, SweepState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial, TrialState
from autotuner.lease_watch import LeaseWatch
from autotuner.ports import Clock, Launcher, Store
from autotuner.search.learning.recollection import informed_with_trials
from autotuner.search.sweeps.history import all_trials
from autotuner.search.sweeps.lease import Lease
from autotuner.search.sweeps.sweep_run import SweepRun
from autotuner.tracing import working_on

_log = structlog.get_logger(__name__)

_CANCELLED = SweepEnd(state=SweepState.CANCELLED, reason=StopReason.CANCELLED, detail="cancelled by request")


class Worker:
    """Runs sweeps until told to stop.

    Args:
        owner: Name of this worker, unique among all that share the store.
        lease_s: For how long the worker may be silent before another takes its sweep over.
        shutdown: Set it to end the running trial, give the sweep back and return.
    """

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        shutdown: Flag | None = None,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._shutdown = shutdown or Flag()
        self._watch = LeaseWatch(clock, owner=owner, lease_s=lease_s)

    def run_once(self) -> bool:
        """Take one sweep and run it to its end; False if there is none to take."""
        lapsed = self._watch.lapsed(self._store.held_sweeps)
        sweep = self._claimed(lapsed)
        if sweep is None:
            return False
        with working_on("sweep.run", sweep_id=sweep.id, worker=self._owner, caller=sweep.created_by):
            self._see_to_its_end(sweep)
        return True

    def _see_to_its_end(self, sweep: Sweep) -> None:
        _log.info("sweep.claimed")
        lease = Lease(
            self._store,
            self._clock,
            owner=self._owner,
            sweep=sweep,
            duration_s=self._lease_s,
            shutdown=self._shutdown,
        )
        try:
            self._run(sweep, lease)
        except LeaseLost:
            _log.warning("sweep.lease_lost")
        except StoreUnavailable:
            raise
        except Exception as error:  # a bug must end this sweep with its reason, not the worker and the queue behind it
            _log.exception("sweep.error")
            with contextlib.suppress(LeaseLost):
                lease.finish_sweep(SweepState.FAILED, StopReason.ERROR, f"{type(error).__name__}: {error}")

    def _claimed(self, lapsed: Sequence[HeldLease]) -> Sweep | None:
        try:
            now, lease_s = self._clock.now(), self._lease_s
            return self._store.claim_sweep(owner=self._owner, now=now, lease_s=lease_s, lapsed=lapsed)
        except StoreUnavailable:
            self._watch.refused()
            raise

    def _run(self, sweep: Sweep, lease: Lease) -> None:
        with lease.kept():
            if refusal := self._launcher.refuses(sweep.request.runs_on, sweep.request.trainer):
                lease.finish_sweep(SweepState.FAILED, StopReason.CANNOT_RUN, refusal)
                return
            known, past = informed_with_trials(sweep, self._store.history)
            run = SweepRun(
                known,
                lease,
                self._launcher,
                self._clock,
                trials=self._trials(sweep.id),
                shutdown=self._shutdown,
                past=past,
            )
            while (end := run.run()) is not None:
                if lease.finish_sweep(end.state, end.reason, end.detail, seen=run.demand, prospects=run.prospects):
                    _log.info("sweep.finished", reason=end.reason.value, detail=end.detail)
                    return
            if self._shutdown.is_set() or not lease.cancel_requested:
                lease.release()
            else:
                ended = lease.demand.ended or _CANCELLED
                lease.finish_sweep(ended.state, ended.reason, ended.detail)

    def _trials(self, sweep_id: str) -> list[Trial]:
        """Every trial of the sweep; with its steps where they are all that a pruned trial left."""
        trials = all_trials(self._store, sweep_id)
        return [self._store.get_trial(t.id) if t.state == TrialState.PRUNED else t for t in trials]
