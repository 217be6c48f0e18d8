"""TrialPerformer: runs the trials and the convergence gates of one sweep, and stores their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.errors import Conflict, LeaseLost, StoreUnavailable
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.prediction import TrialEstimate
from autotuner.core.rules.legality import reasons
from autotuner.core.run import Finish, Lease, RunState, StopReason
from autotuner.core.sweep import RunTrial, SweepRequest, SweepResult
from autotuner.core.trial import (
    EngineJob,
    FailureKind,
    Outcome,
    Stopped,
    Trial,
    TrialFailure,
    TrialState,
)
from autotuner.core.trial_spec import TrialSpec
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.launch.contract import Launcher
from autotuner.runs.convergence_gate import run_gate
from autotuner.runs.instructions import MAX_ATTEMPTS, RunGate, given_up, lost_in_words, unless_lost_again
from autotuner.runs.kind import Kind, Work, already_ended
from autotuner.runs.lease import Hold
from autotuner.runs.past_trials import informed_with_trials
from autotuner.runs.sweep_run import SweepMachine
from autotuner.runs.tracing import working_on
from autotuner.search.space.trainers import trial_rules

if TYPE_CHECKING:
    from autotuner.store.sql import Store

T = TypeVar("T")

_NOISE_RUNS = 2
"""Fewest runs whose results can differ."""

_STARTED = (TrialState.RUNNING, TrialState.WAITING)

_log = structlog.get_logger(__name__)


def sweep_kind(store: Store, launcher: Launcher) -> Kind:
    """Return the kind of run that searches for the best layout, for a worker. ``launcher`` runs its trials."""

    def begin(hold: Hold) -> Work:
        _log.info("sweep.claimed")
        run = hold.run
        asked = replace(run.request, budget=run.demand.budget)
        if refusal := launcher.refuses(asked.runs_on, asked.trainer):
            result = SweepResult(reason=StopReason.CANNOT_RUN)
            return already_ended(Finish(state=RunState.FAILED, detail=refusal, result=result))
        known, past = informed_with_trials(replace(store.get_sweep(run.id), request=asked), store.history)
        machine = SweepMachine(
            known.request,
            _trials(store, run.id),
            started_at=(run.started_at or hold.now()) + run.idle_s,
            past=past,
            demand=run.demand,
        )
        performer = TrialPerformer(hold, machine, store, launcher, known.request)
        performer.estimate_what_was_left()
        num_parallel = min(asked.max_parallel_trials, launcher.capacity(asked.runs_on))
        return Work(machine=machine, perform=performer.perform, num_parallel=num_parallel, hear=machine.hear)

    return Kind(name="sweep", begin=begin, span="sweep.run")


def _trials(store: Store, sweep_id: str) -> Sequence[Trial]:
    """Return all trials of the sweep; a pruned trial comes with its steps, since it has no measurement."""
    trials = store.all_trials(sweep_id)
    return [store.get_trial(t.id) if t.state == TrialState.PRUNED else t for t in trials]


class TrialPerformer:
    """Performs the trials and convergence gates that the machine of one sweep orders, each on a separate thread.

    A thread waits in the launcher until its trial has ended. Every write to the store checks the lease. A write that
    must not be lost is repeated until it succeeds.

    Args:
        hold: The worker's hold on the sweep.
        machine: The machine of the sweep, which gets the states and outcomes of trials.
        store: The store that gets the results.
        launcher: Runs the trials.
        request: The request of the sweep, with its job calibrated by past trials.
    """

    def __init__(
        self, hold: Hold, machine: SweepMachine, store: Store, launcher: Launcher, request: SweepRequest
    ) -> None:
        self._hold = hold
        self._machine = machine
        self._store = store
        self._launcher = launcher
        self._request = request

    def perform(self, action: RunTrial | RunGate) -> None:
        """Run a trial or a convergence gate to its end, and store its outcome.

        Raises:
            LeaseLost: Another worker has the sweep.
        """
        match action:
            case RunTrial():
                self._try(action)
            case RunGate():
                self._gate(action)

    def estimate_what_was_left(self) -> None:
        """Store the missing full-size estimates of proxy trials, after a worker died between a trial and its estimates.

        A proxy trial runs a layout on fewer ranks than the job has. Its result is scaled to the size of the job.
        """
        if self._machine.lacks_estimates:
            estimates = self._machine.estimates()
            self._machine.estimated(self._hold.write(lambda lease: self._set_estimates(estimates, lease)))

    # ------------------------------------------------------------------ on a trial's thread
    def _try(self, order: RunTrial) -> None:
        queued = order.stored or self._added(order)
        if order.note:
            self.noted(queued, order.note)
        with working_on("trial.run", trial_id=queued.id) as span:
            ended = self._tried(queued)
            span.set_attribute("autotuner.state", ended.state.value)
            with self._machine.lock:
                if ended.state.finished:
                    self._machine.finished(self._estimated(ended))
                else:
                    self._machine.given_back(ended)
                learnt = self._machine.learnt_of_memory(ended)
            if learnt:
                self.noted(ended, learnt)

    def _tried(self, queued: Trial) -> Trial:
        """Run the trial, store its result, and return the ended trial."""
        running = self._started(queued)
        with self._machine.lock:
            spec = self._spec(running)
            self._machine.placed(running)
        outcome: Outcome | None = given_up(queued)
        if outcome is None:
            outcome = unless_lost_again(running, self._launched(spec, _Watcher(self, running)))
            outcome = self._with_resource_cost(running, outcome)
            if isinstance(outcome, Stopped) and outcome.reason == "infrastructure":
                again = f"attempt {running.attempts} of {MAX_ATTEMPTS} is lost, and the trial is queued again"
                self.noted(running, f"{outcome.detail}; {again}")
        ended = self._finished(running, outcome)
        _log.info("trial.finished", state=ended.state.value, layout=str(ended.layout))
        return ended

    def _with_resource_cost(self, trial: Trial, outcome: Outcome) -> Outcome:
        """Add the layout's resource cost to the measurement of a full-size trial; a proxy trial's is estimated."""
        if trial.proxy is not None or not isinstance(outcome, Measurement):
            return outcome
        job = self._request.trial_job
        return replace(
            outcome, resource_cost=resource_cost_of(trial.layout, job, trial.prediction, outcome, outcome.power_w)
        )

    def _estimated(self, ended: Trial) -> Trial:
        """Return an ended trial with its estimate for the full cluster.

        Store the estimates of other trials that change too.
        """
        if not (estimates := self._machine.estimates(ended)):
            return ended
        estimated = self._hold.write(lambda lease: self._set_estimates(estimates, lease))
        self._machine.estimated([trial for trial in estimated if trial.number != ended.number])
        return next((trial for trial in estimated if trial.number == ended.number), ended)

    def _gate(self, order: RunGate) -> None:
        with working_on("trial.gate", trial_id=order.trial.id):
            trial, found = order.trial, self._gate_result(order)
            if isinstance(found, GateResult):
                with self._machine.lock:
                    hours = 0.0 if order.known else self._machine.gate_hours(trial, self._now())
                trial = self._gated(trial, found.having_cost(hours))
                _log.info("trial.gated", outcome=found.outcome.value, detail=found.detail)
        with self._machine.lock:
            self._machine.gate_ended(trial)

    def _gate_result(self, order: RunGate) -> GateResult | Stopped:
        if order.known is not None:
            return order.known
        request = self._request
        broken = reasons(order.reference, request.job_of(order.trial.proxy), trial_rules(request.trainer))
        if broken:
            return self._not_gated(order, f"the reference {order.reference} cannot run here: {broken[0].message}")
        for _ in range(MAX_ATTEMPTS):
            found = self._gate_attempt(order)
            if not (isinstance(found, Stopped) and found.reason == "infrastructure"):
                return found
        with self._machine.lock:
            on_engine = bool(self._machine.gate_jobs(order.trial))
        return self._not_gated(order, lost_in_words(MAX_ATTEMPTS, found.detail, on_engine=on_engine))

    def _gate_attempt(self, order: RunGate) -> GateResult | Stopped:
        with self._machine.lock:
            spec = replace(
                self._spec(order.trial), jobs=self._machine.gate_jobs(order.trial), runs=(), fault_trace=None
            )
        gate, watcher = self._request.convergence_gate, _GateWatcher(self, order.trial)
        return run_gate(self._launcher, spec, order.reference, gate, watcher)

    def _not_gated(self, order: RunGate, detail: str) -> GateResult:
        outcome, tolerance = GateOutcome.NOT_GATED, self._request.convergence_gate.tolerance
        return GateResult(outcome=outcome, detail=detail, reference=order.reference, tolerance=tolerance)

    def _launched(self, spec: TrialSpec, watcher: _Watcher) -> Outcome:
        """Run the trial and return its outcome; an error of the launcher fails only this trial."""
        try:
            return self._launcher.run(spec, watcher)
        except Exception as error:
            if error is watcher.error:
                raise
            _log.exception("launcher.error")
            message = f"the launcher failed: {type(error).__name__}: {error}"
            return TrialFailure(kind=FailureKind.CRASH, message=message)

    def _spec(self, trial: Trial) -> TrialSpec:
        """Return the specification of a trial.

        The first measured trial runs twice, so that the sweep knows its noise floor.
        """
        request, job = self._request, self._request.job_of(trial.proxy)
        accelerator = job.cluster.accelerator
        settings = replace(request.trial, timeout_s=request.trial_timeout_s)
        on_cpu, reference = accelerator.kind == "cpu", self._machine.reference_flop_per_s
        if self._machine.tells_noise(trial.number):
            settings = replace(settings, num_runs=max(settings.num_runs, _NOISE_RUNS))
        is_known = accelerator.peak_is_measured or not on_cpu
        return TrialSpec(
            trial_id=trial.id,
            model=job.model,
            workload=job.workload,
            layout=trial.ran,
            device="cpu" if on_cpu else "cuda",
            settings=settings,
            seed=request.seed,
            reference_flop_per_s=reference,
            precision_flop_per_s=accelerator.peak_flop_per_s(trial.ran.precision) if is_known else None,
            memory_bytes=None if on_cpu else accelerator.memory_bytes,  # CPU cores share their memory
            trainer=request.trainer,
            cluster=job.cluster,
            repeat=0 if trial.repeats is None else trial.number,
            jobs=trial.jobs,
            runs=trial.runs,
            stack=request.job.stack,
            fault_trace=request.fault_trace,
        )

    # ------------------------------------------------------------------ writes that may be repeated
    def _added(self, order: RunTrial) -> Trial:
        def added(lease: Lease) -> Trial | None:
            stored = next((t for t in self._store.all_trials(lease.run_id) if t.number == order.number), None)
            is_same = stored is not None and stored.state is TrialState.QUEUED and stored.layout == order.layout
            return stored if is_same else None

        return self._write_or_find(lambda lease: self._store.add_trial(order, lease=lease), added)

    def _started(self, trial: Trial) -> Trial:
        """Store that the trial runs; each attempt is counted once."""
        return self._write_or_find(
            lambda lease: self._store.start_trial(trial.id, lease=lease, now=self._now()),
            lambda _: self._found(trial, lambda stored: stored.state in _STARTED),
        )

    def _finished(self, trial: Trial, outcome: Outcome) -> Trial:
        return self._write_or_find(
            lambda lease: self._store.finish_trial(trial.id, outcome, lease=lease, now=self._now()),
            lambda _: self._found(trial, lambda stored: stored.state not in _STARTED),
        )

    def _gated(self, trial: Trial, result: GateResult) -> Trial:
        return self._write_or_find(
            lambda lease: self._store.add_gate(trial.id, result, lease=lease, now=self._now()),
            lambda _: self._found(trial, lambda stored: stored.gate is not None),
        )

    def _set_estimates(self, estimates: Mapping[str, TrialEstimate], lease: Lease) -> Sequence[Trial]:
        return self._store.set_estimates(lease.run_id, estimates, lease=lease, now=self._now())

    def _found(self, trial: Trial, is_written: Callable[[Trial], bool]) -> Trial | None:
        stored = self._store.get_trial(trial.id)
        return stored if is_written(stored) else None

    def _write_or_find(self, write: Callable[[Lease], Trial], find: Callable[[Lease], Trial | None]) -> Trial:
        """Write until it succeeds.

        If an earlier attempt was stored and only its answer was lost, return the stored trial.
        """

        def attempt(lease: Lease) -> Trial:
            try:
                return write(lease)
            except Conflict:
                if (stored := find(lease)) is None:
                    raise
                return stored

        return self._hold.write(attempt)

    def _now(self) -> float:
        return self._hold.now()

    # ------------------------------------------------------------------ questions of watchers
    def heard(self, trial: Trial, step: StepReport) -> Stopped | None:
        """Store a step of a trial, and return why the trial should end early, or None.

        If the store cannot be reached, the step is lost. This does no harm, since the measurement of the trial contains
        everything that is needed.
        """
        self._unless_away(
            lambda lease: self._store.add_step(trial.id, step, lease=lease, now=self._now()),
            "lease.step_not_stored",
            trial_id=trial.id,
            step=step.step,
        )
        return self._machine.reported(trial.number, step)

    def link_event(self, trial: Trial, event: LinkEvent) -> None:
        """Store an event of a trial's pipeline, such as a slow link.

        If the store cannot be reached, the event is lost.
        """
        self._unless_away(
            lambda lease: self._store.add_link_event(trial.id, event, lease=lease, now=self._now()),
            "lease.link_event_not_stored",
            trial_id=trial.id,
            step=event.step,
        )

    def noted(self, trial: Trial, note: str) -> None:
        """Store a note on the progress of a trial, which pages show to the people who wait for the trial.

        If the store cannot be reached, the note is lost.
        """
        self._unless_away(
            lambda lease: self._store.add_note(trial.id, note, lease=lease, now=self._now()),
            "lease.note_not_stored",
            trial_id=trial.id,
            note=note,
        )

    def run_ended(self, trial: Trial, run: FinishedRun) -> None:
        """Store a finished run of a trial, so that another worker need not repeat it.

        If the store cannot be reached, the run is not stored.
        """
        self._unless_away(
            lambda lease: self._store.add_run(trial.id, run, lease=lease),
            "lease.run_not_stored",
            trial_id=trial.id,
            run=run.number,
        )

    def waits(self, trial: Trial, reason: str | None) -> None:
        """Store that a trial waits for devices, and why; if ``reason`` is None, store that the wait is over.

        Waiting time does not count as accelerator time.
        """
        self._machine.placed(
            self._hold.write(lambda lease: self._store.set_waiting(trial.id, reason, lease=lease, now=self._now()))
        )

    def placed(self, trial: Trial, job: EngineJob) -> None:
        """Store the state of an engine job of a trial.

        Accelerator time counts from the moment at which the job gets its accelerators.
        """
        self._machine.placed(
            self._hold.write(lambda lease: self._store.set_job(trial.id, job, lease=lease, now=self._now()))
        )

    def gate_waits(self, trial: Trial, reason: str | None) -> None:
        """Record that a convergence gate waits for devices, and store a note with the reason; None: the wait is over.

        Waiting time does not count as accelerator time.
        """
        if reason is not None:
            self.noted(trial, reason)
        self._machine.gate_waits(trial, self._now(), is_waiting=reason is not None)

    def gate_placed(self, trial: Trial, job: EngineJob) -> None:
        """Record the state of an engine job of a trial's convergence gate.

        The job is not listed as a job of the trial.
        """
        self._machine.gate_placed(trial, job)

    def reason_to_end(self) -> Stopped | None:
        """Return why all running trials must end, or None if they may go on.

        They must end if the run must stop or if the budget is used up.
        """
        self._hold.renew_if_due()
        if (stopped := self._hold.stopped()) is not None:
            return stopped
        with self._machine.lock:
            self._machine.hear(self._hold.run)
            return self._machine.overspent(self._now())

    def _unless_away(self, write: Callable[[Lease], None], event: str, **facts: Any) -> None:
        try:
            self._hold.write_once(write)
        except StoreUnavailable as error:
            _log.warning(event, error=str(error), **facts)


class _Watcher:
    """Follows one trial for the launcher that runs it, and decides when the trial should end.

    Attributes:
        error: Error that a method raised; it tells our own error from an error of the launcher.
    """

    def __init__(self, performer: TrialPerformer, trial: Trial) -> None:
        self._performer = performer
        self._trial = trial
        self._stop: Stopped | None = None
        self.error: Exception | None = None

    def on_step(self, step: StepReport) -> None:
        self._remembering(lambda: self._performer.heard(self._trial, step))

    def on_link_event(self, event: LinkEvent) -> None:
        self._remembering(lambda: self._performer.link_event(self._trial, event))

    def on_note(self, note: str) -> None:
        self._remembering(lambda: self._performer.noted(self._trial, note))

    def on_wait(self, reason: str | None) -> None:
        self._remembering(lambda: self._performer.waits(self._trial, reason))

    def on_run(self, run: FinishedRun) -> None:
        self._remembering(lambda: self._performer.run_ended(self._trial, run))

    def on_job(self, job: EngineJob) -> None:
        self._remembering(lambda: self._performer.placed(self._trial, job))

    def stop_requested(self) -> Stopped | None:
        self._remembering(self._performer.reason_to_end)
        return self._stop

    def _remembering(self, ask: Callable[[], Stopped | None]) -> None:
        try:
            answer = ask()
        except LeaseLost:
            answer = Stopped(reason="lease_lost")
        except Exception as error:
            self.error = error
            raise
        if answer is not None and (self._stop is None or answer.reason == "lease_lost"):
            self._stop = answer


class _GateWatcher(_Watcher):
    """Follows the convergence gate of a trial."""

    def on_wait(self, reason: str | None) -> None:
        self._remembering(lambda: self._performer.gate_waits(self._trial, reason))

    def on_run(self, run: FinishedRun) -> None:
        """Do nothing, because a gate trains each of its layouts once and keeps no runs."""

    def on_job(self, job: EngineJob) -> None:
        self._remembering(lambda: self._performer.gate_placed(self._trial, job))
