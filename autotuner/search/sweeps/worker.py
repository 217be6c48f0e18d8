"""Worker: takes sweeps by lease and runs their trials one after the other.

All waiting happens inside ``Launcher.run``, which asks the watcher for a stop a few times a second; that is where
the lease is renewed, a cancel request is seen and a losing trial is pruned. So a worker needs no second thread.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from threading import Event as Flag
from typing import Literal

import structlog

from autotuner.domain.sweep import StopReason, Sweep, SweepState
from autotuner.domain.trial import (
    FailureKind,
    Outcome,
    StepReport,
    Stopped,
    Trial,
    TrialFailure,
    TrialSpec,
    TrialState,
)
from autotuner.errors import LeaseLost, StoreUnavailable
from autotuner.ports import Clock, Launcher, Store, TrialWatcher
from autotuner.search.sweeps.history import all_trials
from autotuner.search.sweeps.lease import Lease
from autotuner.search.sweeps.plan import Finish, RunTrial, SweepPlan

__all__ = ["Worker"]

_RENEWALS_PER_LEASE = 4
"""A lease survives three renewals that fail or come late."""

_NOISE_RUNS = 2
"""The fewest runs that can differ."""

_log = structlog.get_logger(__name__)


class Worker:
    """Runs sweeps until told to stop.

    Args:
        owner: Name of this worker, unique among all that share the store.
        lease_s: How long the store keeps a sweep for a worker that says nothing.
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

    def run_forever(self, poll_s: float) -> None:
        """Run every sweep that comes, looking for the next one every ``poll_s`` seconds."""
        while not self._shutdown.is_set():
            try:
                found = self.run_once()
            except StoreUnavailable as error:
                _log.warning("worker.store_unavailable", error=str(error))
                found = False
            except Exception:  # a worker that dies silently would leave every later sweep queued
                _log.exception("worker.error")
                found = False
            if not found:
                self._shutdown.wait(poll_s)

    def run_once(self) -> bool:
        """Take one sweep and run it to its end; False if there is none to take."""
        sweep = self._store.claim_sweep(owner=self._owner, now=self._clock.now(), lease_s=self._lease_s)
        if sweep is None:
            return False
        log = _log.bind(sweep=sweep.id, owner=self._owner)
        log.info("sweep.claimed")
        lease = Lease(
            store=self._store,
            clock=self._clock,
            owner=self._owner,
            sweep_id=sweep.id,
            duration_s=self._lease_s,
            shutdown=self._shutdown,
        )
        try:
            self._run(sweep, lease)
        except LeaseLost:
            log.warning("sweep.lease_lost")
        except StoreUnavailable:
            raise
        except Exception as error:  # a bug must end this sweep with its reason, not the worker and the queue behind it
            log.exception("sweep.error")
            with contextlib.suppress(LeaseLost):
                lease.finish_sweep(SweepState.FAILED, StopReason.ERROR, f"{type(error).__name__}: {error}")
        return True

    def _run(self, sweep: Sweep, lease: Lease) -> None:
        if refusal := self._launcher.refuses(sweep.request.job.cluster):
            lease.finish_sweep(SweepState.FAILED, StopReason.CANNOT_RUN, refusal)
            return
        plan = SweepPlan(sweep.request, self._trials(sweep.id), started_at=sweep.started_at or self._clock.now())
        while not self._shutdown.is_set():
            if lease.renew().cancel_requested:
                lease.finish_sweep(SweepState.CANCELLED, StopReason.CANCELLED, "cancelled by request")
                return
            instruction = plan.next(self._clock.now())
            if isinstance(instruction, Finish):
                lease.finish_sweep(instruction.state, instruction.reason, instruction.detail)
                _log.info("sweep.finished", sweep=sweep.id, reason=instruction.reason.value, detail=instruction.detail)
                return
            self._try(sweep, lease, plan, instruction)
        lease.release()

    def _try(self, sweep: Sweep, lease: Lease, plan: SweepPlan, order: RunTrial) -> None:
        queued = order.stored or lease.add_trial(order.number, order.layout, order.prediction)
        running = lease.start(queued)
        plan.started(running)
        outcome: Outcome
        if plan.may_run(queued):
            watcher = _Watcher(lease, running, plan, renewed_at=self._clock.now())
            outcome = self._launched(_spec(sweep, running, is_first=not plan.has_measured), watcher)
        else:
            message = f"interrupted {queued.attempts} times; the service dies when it runs"
            outcome = TrialFailure(kind=FailureKind.INTERRUPTED, message=message)
        ended = lease.finish(running, outcome)
        _log.info("trial.finished", trial=ended.id, state=ended.state.value, layout=str(ended.layout))
        if ended.state.finished:
            plan.finished(self._store.get_trial(ended.id))

    def _launched(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """How the trial ended; a launcher that broke fails this trial, and the sweep goes on."""
        try:
            return self._launcher.run(spec, watcher)
        except Exception as error:
            _log.exception("launcher.error", trial=spec.trial_id)
            message = f"the launcher failed: {type(error).__name__}: {error}"
            return TrialFailure(kind=FailureKind.CRASH, message=message)

    def _trials(self, sweep_id: str) -> list[Trial]:
        """Every trial of the sweep; with its steps where they are all that a pruned trial left."""
        trials = all_trials(self._store, sweep_id)
        return [self._store.get_trial(t.id) if t.state == TrialState.PRUNED else t for t in trials]


class _Watcher:
    """Follows one trial: stores its steps, keeps the lease, and knows when the trial should end."""

    def __init__(self, lease: Lease, trial: Trial, plan: SweepPlan, *, renewed_at: float) -> None:
        self._lease = lease
        self._trial = trial
        self._plan = plan
        self._renewed_at = renewed_at
        self._stop: Literal["pruned", "cancelled", "lease_lost", "shutdown"] | None = None

    def on_step(self, step: StepReport) -> None:
        try:
            self._lease.add_step(self._trial, step)
        except LeaseLost:
            self._stop = "lease_lost"
        if self._plan.reported(step):
            self._stop = self._stop or "pruned"

    def on_note(self, note: str) -> None:
        _log.info("trial.note", trial=self._trial.id, note=note)

    def stop_requested(self) -> Stopped | None:
        now = self._lease.clock.now()
        if self._lease.shutdown.is_set():
            self._stop = self._stop or "shutdown"
        elif now - self._renewed_at >= self._lease.duration_s / _RENEWALS_PER_LEASE:
            self._renewed_at = now
            self._renew()
        if self._plan.overspent(now):
            self._stop = self._stop or "cancelled"
        return None if self._stop is None else Stopped(reason=self._stop)

    def _renew(self) -> None:
        try:
            if self._lease.renew().cancel_requested:
                self._stop = self._stop or "cancelled"
        except LeaseLost:
            self._stop = "lease_lost"
        except StoreUnavailable as error:  # the trial goes on; the lease decides later whether its result still counts
            _log.warning("worker.store_unavailable", error=str(error))


def _spec(sweep: Sweep, trial: Trial, *, is_first: bool) -> TrialSpec:
    """What to run; the first trial of a sweep that is measured runs twice, so that the sweep knows its noise floor."""
    accelerator, settings = sweep.request.job.cluster.accelerator, sweep.request.trial
    on_cpu = accelerator.kind == "cpu"
    # Nobody's data sheet says what a core multiplies; where it was not measured with the cluster, the trial measures.
    known = accelerator.peak_is_measured or not on_cpu
    return TrialSpec(
        trial_id=trial.id,
        model=sweep.request.job.model,
        workload=sweep.request.job.workload,
        layout=trial.layout,
        device="cpu" if on_cpu else "cuda",
        settings=replace(settings, num_runs=max(settings.num_runs, _NOISE_RUNS)) if is_first else settings,
        seed=sweep.request.seed,
        reference_flop_per_s=accelerator.reference_flop_per_s if known else None,
        precision_flop_per_s=accelerator.peak_flop_per_s(trial.layout.precision) if known else None,
        memory_bytes=None if on_cpu else accelerator.memory_bytes,  # cores share theirs
    )
