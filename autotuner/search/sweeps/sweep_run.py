"""SweepRun: keeps as many trials of one sweep running as the plan wants and the launcher has room for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import structlog

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.errors import LeaseLost
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.rules.legality import reasons
from autotuner.core.sweep import Demand, Prospects, Sweep
from autotuner.core.trial import EngineJob, FailureKind, Outcome, PastTrial, Stopped, Trial, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.ports import Clock, Launcher
from autotuner.search.expressible import trial_rules
from autotuner.search.sweeps.attempts import MAX_ATTEMPTS, given_up, lost_in_words, unless_lost_again
from autotuner.search.sweeps.instructions import RunGate, RunTrial, Wait
from autotuner.search.sweeps.lease import Lease
from autotuner.search.sweeps.loss_gating import run_gate
from autotuner.search.sweeps.plan import SweepPlan
from autotuner.search.sweeps.stopping import Finish
from autotuner.tracing import carried, working_on

_NOISE_RUNS = 2
"""The fewest runs that can differ."""

_POLL_S = 0.2
"""How long a request to stop may wait while trials run that do not ask."""

_log = structlog.get_logger(__name__)


class SweepRun:
    """A claimed sweep from its next trial to its end.

    Trials run on threads of their own, since a launcher's ``run`` returns when its trial has ended. The plan is asked
    and told under one lock; every thread may write to the store.
    """

    def __init__(
        self,
        sweep: Sweep,
        lease: Lease,
        launcher: Launcher,
        clock: Clock,
        *,
        trials: Sequence[Trial],
        shutdown: threading.Event,
        past: Sequence[PastTrial] = (),
    ) -> None:
        self._sweep = sweep
        self._lease = lease
        self._launcher = launcher
        self._clock = clock
        self._shutdown = shutdown
        started_at = (sweep.started_at or clock.now()) + sweep.interventions.idle_s
        self._plan = SweepPlan(sweep.request, trials, started_at=started_at, past=past, demand=sweep.demand)
        self._planning = threading.RLock()
        self._abandoned = threading.Event()
        room = launcher.capacity(sweep.request.runs_on)
        self._num_parallel = min(sweep.request.max_parallel_trials, room)

    @property
    def demand(self) -> Demand:
        """What the plan knows to be asked of the sweep."""
        return self._plan.demand

    @property
    def prospects(self) -> Prospects:
        """What the search expects of going on."""
        with self._planning:
            return self._plan.prospects

    def run(self) -> Finish | None:
        """Run trials until the plan says that the sweep is over; None when it was told to stop before.

        It may be called again, once more is asked of the sweep.

        Raises:
            LeaseLost: Another worker has the sweep.
        """
        if self._plan.lacks_estimates:  # whoever measured the last trial died before it could say what it tells
            self._plan.estimated(self._lease.set_estimates(self._plan.estimates()))
        with ThreadPoolExecutor(self._num_parallel, thread_name_prefix="autotuner-trial") as pool, self._all_or_none():
            running: set[Future[None]] = set()
            while not self._is_over():
                instruction = Wait() if len(running) == self._num_parallel else self._next()
                match instruction:
                    case Finish():
                        return instruction
                    case RunTrial():
                        running.add(pool.submit(carried(partial(self._try, instruction))))
                    case RunGate():
                        running.add(pool.submit(carried(partial(self._gate, instruction))))
                    case Wait():
                        running = _without_ended(running)
            while running:
                running = _without_ended(running)
        self._end_jobs_left()
        if self._lease.is_lost:
            raise LeaseLost(self._sweep.id, "this worker")
        return None

    def _end_jobs_left(self) -> None:
        """Take up trials that were interrupted while their jobs went on, so that these end with a cancel or a pause."""
        while self._is_stopped and not self._shutdown.is_set() and self._plan.has_jobs_left:
            order = self._next()
            if not isinstance(order, RunTrial):
                return
            self._try(order)

    def _is_over(self) -> bool:
        self._lease.renew_if_due()
        return self._shutdown.is_set() or self._lease.is_lost or self._is_stopped

    @property
    def _is_stopped(self) -> bool:
        """Whether somebody asked for an end or a pause."""
        return self._lease.cancel_requested or self._lease.pause_requested

    def _next(self) -> RunTrial | RunGate | Wait | Finish:
        with self._planning:
            self._plan.hear(self._lease.demand)
            instruction = self._plan.next(self._clock.now())
            if isinstance(instruction, RunGate):
                self._plan.gate_started(instruction.trial, self._clock.now())
            return instruction

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """An error of one trial's thread ends the others, before it goes on its way."""
        try:
            yield
        except BaseException:
            self._abandoned.set()
            raise

    # ------------------------------------------------------------------ on a trial's thread
    def _try(self, order: RunTrial) -> None:
        queued = order.stored or self._added(order)
        if order.note:
            self._lease.add_note(queued, order.note)
        with working_on("trial.run", trial_id=queued.id) as span:
            ended = self._tried(queued)
            span.set_attribute("autotuner.state", ended.state.value)
            with self._planning:
                if ended.state.finished:
                    self._plan.finished(self._estimated(ended))
                else:
                    self._plan.given_back(ended)
                learnt = self._plan.learnt_of_memory(ended)
            if learnt:
                self._lease.add_note(ended, learnt)

    def _tried(self, queued: Trial) -> Trial:
        """The trial as it ended, stored."""
        running = self._lease.start(queued)
        with self._planning:
            spec = self._spec(running)
            self._plan.started(running)
        outcome: Outcome | None = given_up(queued)
        if outcome is None:
            outcome = unless_lost_again(running, self._launched(spec, _Watcher(self, running)))
            outcome = self._with_footprint(running, outcome)
            if isinstance(outcome, Stopped) and outcome.reason == "infrastructure":
                again = f"attempt {running.attempts} of {MAX_ATTEMPTS} is lost, and the trial queued again"
                self._lease.add_note(running, f"{outcome.detail}; {again}")
        ended = self._lease.finish(running, outcome)
        _log.info("trial.finished", state=ended.state.value, layout=str(ended.layout))
        return ended

    def _with_footprint(self, trial: Trial, outcome: Outcome) -> Outcome:
        """What a whole trial measured, with what its layout takes beside time; a small one's is estimated."""
        if trial.scaled is not None or not isinstance(outcome, Measurement):
            return outcome
        job = self._sweep.request.trial_job
        return replace(outcome, footprint=footprint_of(trial.layout, job, trial.prediction, outcome, outcome.power_w))

    def _added(self, order: RunTrial) -> Trial:
        return self._lease.add_trial(
            order.number,
            order.layout,
            order.prediction,
            scaled=order.scaled,
            repeats=order.repeats,
            prospects=order.prospects,
        )

    def _estimated(self, ended: Trial) -> Trial:
        """A trial that ended, with what is estimated of it; what it told changes the estimates of the others, too."""
        if not (estimates := self._plan.estimates(ended)):
            return ended
        estimated = self._lease.set_estimates(estimates)
        self._plan.estimated([trial for trial in estimated if trial.number != ended.number])
        return next((trial for trial in estimated if trial.number == ended.number), ended)

    def _gate(self, order: RunGate) -> None:
        with working_on("trial.gate", trial_id=order.trial.id):
            trial, found = order.trial, self._gate_result(order)
            if isinstance(found, GateResult):
                with self._planning:
                    hours = 0.0 if order.known else self._plan.gate_hours(trial, self._clock.now())
                trial = self._lease.add_gate(trial, found.having_cost(hours))
                _log.info("trial.gated", outcome=found.outcome.value, detail=found.detail)
        with self._planning:
            self._plan.gate_ended(trial)

    def _gate_result(self, order: RunGate) -> GateResult | Stopped:
        if order.known is not None:
            return order.known
        request = self._sweep.request
        broken = reasons(order.reference, request.job_of(order.trial.scaled), trial_rules(request.trainer))
        if broken:
            return self._not_gated(order, f"the reference {order.reference} cannot run here: {broken[0].message}")
        for _ in range(MAX_ATTEMPTS):
            found = self._gate_attempt(order)
            if not (isinstance(found, Stopped) and found.reason == "infrastructure"):
                return found
        with self._planning:
            on_engine = bool(self._plan.gate_jobs(order.trial))
        return self._not_gated(order, lost_in_words(MAX_ATTEMPTS, found.detail, on_engine=on_engine))

    def _gate_attempt(self, order: RunGate) -> GateResult | Stopped:
        with self._planning:
            spec = replace(self._spec(order.trial), jobs=self._plan.gate_jobs(order.trial), runs=(), fault_trace=None)
        gate, watcher = self._sweep.request.loss_gate, _GateWatcher(self, order.trial)
        return run_gate(self._launcher, spec, order.reference, gate, watcher)

    def _not_gated(self, order: RunGate, detail: str) -> GateResult:
        outcome, tolerance = GateOutcome.NOT_GATED, self._sweep.request.loss_gate.tolerance
        return GateResult(outcome=outcome, detail=detail, reference=order.reference, tolerance=tolerance)

    def _launched(self, spec: TrialSpec, watcher: _Watcher) -> Outcome:
        """How the trial ended; a launcher that broke fails this trial, and the sweep goes on."""
        try:
            return self._launcher.run(spec, watcher)
        except Exception as error:
            if error is watcher.error:
                raise
            _log.exception("launcher.error")
            message = f"the launcher failed: {type(error).__name__}: {error}"
            return TrialFailure(kind=FailureKind.CRASH, message=message)

    def _spec(self, trial: Trial) -> TrialSpec:
        """What to run; the first trial that is measured runs twice, so that the sweep knows its noise floor."""
        request, job = self._sweep.request, self._sweep.request.job_of(trial.scaled)
        accelerator = job.cluster.accelerator
        settings = replace(request.trial, timeout_s=request.trial_timeout_s)
        on_cpu, reference = accelerator.kind == "cpu", self._plan.reference_flop_per_s
        if self._plan.tells_noise(trial.number):
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
            memory_bytes=None if on_cpu else accelerator.memory_bytes,  # cores share theirs
            trainer=request.trainer,
            cluster=job.cluster,
            repeat=0 if trial.repeats is None else trial.number,
            jobs=trial.jobs,
            runs=trial.runs,
            stack=request.job.stack,
            fault_trace=request.fault_trace,
        )

    # ------------------------------------------------------------------ what watchers ask
    def heard(self, trial: Trial, step: StepReport) -> Stopped | None:
        """Store a step; an answer if the trial loses by it."""
        self._lease.add_step(trial, step)
        with self._planning:
            return self._plan.reported(trial.number, step)

    def link_event(self, trial: Trial, event: LinkEvent) -> None:
        """Store what a pipeline found out."""
        self._lease.add_link_event(trial, event)

    def noted(self, trial: Trial, note: str) -> None:
        """Store a note."""
        self._lease.add_note(trial, note)

    def waits(self, trial: Trial, reason: str | None) -> None:
        """Store that a trial waits, and why: what it costs is counted from when it goes on."""
        stored = self._lease.set_waiting(trial, reason)
        with self._planning:
            self._plan.placed(stored)

    def run_ended(self, trial: Trial, run: FinishedRun) -> None:
        """Store a run of a trial, so that whoever takes the trial over need not repeat it."""
        self._lease.add_run(trial, run)

    def placed(self, trial: Trial, job: EngineJob) -> None:
        """Store how a job of an engine stands: what it costs is counted from when it has its accelerators."""
        stored = self._lease.set_job(trial, job)
        with self._planning:
            self._plan.placed(stored)

    def gate_waits(self, trial: Trial, reason: str | None) -> None:
        """Tell why a loss gate waits, which costs nothing; the trial is complete, and has no state of its own."""
        if reason is not None:
            self.noted(trial, reason)
        with self._planning:
            self._plan.gate_waits(trial, self._clock.now(), is_waiting=reason is not None)

    def gate_placed(self, trial: Trial, job: EngineJob) -> None:
        """Count what a job of a trial's loss gate costs; the trial is complete, and the job none of its own."""
        with self._planning:
            self._plan.gate_placed(trial, job)

    def reason_to_end(self) -> Stopped | None:
        """Why everything that runs should end, if it should."""
        if self._abandoned.is_set() or self._shutdown.is_set():
            return Stopped(reason="shutdown")
        self._lease.renew_if_due()
        if self._lease.is_lost:
            return Stopped(reason="lease_lost")
        if self._lease.cancel_requested:
            return Stopped(reason="cancelled", detail="cancelled by request")
        if self._lease.pause_requested:
            return Stopped(reason="paused", detail="paused by request")
        with self._planning:
            self._plan.hear(self._lease.demand)
            return self._plan.overspent(self._clock.now())


class _Watcher:
    """Follows one trial for a sweep's run, and knows when it should end.

    Attributes:
        error: What a method raised, so that it can be told from an error of the launcher.
    """

    def __init__(self, run: SweepRun, trial: Trial) -> None:
        self._run = run
        self._trial = trial
        self._stop: Stopped | None = None
        self.error: Exception | None = None

    def on_step(self, step: StepReport) -> None:
        self._remembering(lambda: self._run.heard(self._trial, step))

    def on_link_event(self, event: LinkEvent) -> None:
        self._remembering(lambda: self._run.link_event(self._trial, event))

    def on_note(self, note: str) -> None:
        self._remembering(lambda: self._run.noted(self._trial, note))

    def on_wait(self, reason: str | None) -> None:
        self._remembering(lambda: self._run.waits(self._trial, reason))

    def on_run(self, run: FinishedRun) -> None:
        self._remembering(lambda: self._run.run_ended(self._trial, run))

    def on_job(self, job: EngineJob) -> None:
        self._remembering(lambda: self._run.placed(self._trial, job))

    def stop_requested(self) -> Stopped | None:
        self._remembering(self._run.reason_to_end)
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
    """Follows the loss gate of a trial."""

    def on_wait(self, reason: str | None) -> None:
        self._remembering(lambda: self._run.gate_waits(self._trial, reason))

    def on_run(self, run: FinishedRun) -> None:
        """A gate trains each of its layouts once: there is nothing to keep."""

    def on_job(self, job: EngineJob) -> None:
        self._remembering(lambda: self._run.gate_placed(self._trial, job))


def _without_ended(running: set[Future[None]]) -> set[Future[None]]:
    """Those still running after a moment, or after one has ended.

    Raises:
        Exception: What an ended one raised.
    """
    ended, still = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
    for future in ended:
        future.result()
    return still
