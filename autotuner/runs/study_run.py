"""The optimizer study as a durable run: runs the trials that its plan asks for, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from autotuner.core.errors import AutotunerError
from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.run import Finish, RunState
from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial, PruneReason
from autotuner.core.trial import EngineJob, Stopped, TrialFailure, TrialState, with_job
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.report.study import candidate_line, end_in_words, prune_in_words
from autotuner.runs.kind import LONG_LEASE_S, Do, Kind, Step, Work
from autotuner.runs.lease import Hold, StopRequested
from autotuner.runs.tracing import working_on
from autotuner.search.planning.optimizer_study import StudyEnd, StudyPlan

if TYPE_CHECKING:
    from autotuner.store.optimizer_studies import OptimizerStudyStore

_LEFT_ALONE = ("shutdown", "lease_lost", "infrastructure")
"""Reasons for a stop that say nothing about the trial, so that it is tried again."""

_MAX_ATTEMPTS = 3
"""Number of times that a trial is started if each attempt loses its worker or its nodes; the same as for a sweep."""

_FOLLOW_S = 1.0
"""Seconds between two writes of a running trial to the store."""

_log = structlog.get_logger(__name__)


def study_kind(store: OptimizerStudyStore, launcher: Launcher) -> Kind:
    """Return the kind of run that compares optimizers and their parameters, for a worker.

    ``launcher`` runs its trials.
    """

    def begin(hold: Hold) -> Work:
        request: OptimizerStudyRequest = hold.run.request
        if refusal := launcher.refuses(request.job.cluster):
            raise AutotunerError(refusal)
        plan = StudyPlan(hold.run.id, request, store.trials(hold.run.id))
        performer = _Performer(hold, store, plan, launcher)
        return Work(machine=_StudyMachine(plan, request), perform=performer.run)

    return Kind(name="study", begin=begin, span="study.run", least_lease_s=LONG_LEASE_S)


class _StudyMachine:
    """The state machine of a study, which asks its plan for the next step."""

    def __init__(self, plan: StudyPlan, request: OptimizerStudyRequest) -> None:
        self._plan = plan
        self._request = request

    def next(self, now: float) -> Step:  # noqa: ARG002
        """Return the next trial of the study, or how the study ends."""
        step = self._plan.next()
        if isinstance(step, StudyEnd):
            state = RunState.COMPLETE if step.num_reached else RunState.FAILED
            detail = end_in_words(step, self._request)
            _log.info("study.finished", state=state.value, detail=detail)
            return Finish(state=state, detail=detail)
        return Do(action=step, ends_jobs=any(not job.phase.is_over for job in step.jobs))

    def tell(self, outcome: OptimizerTrial) -> None:
        """Tell the plan how a trial ended, or that it must run again."""
        self._plan.tell(outcome)


class _Performer:
    """Runs the trials of one study."""

    def __init__(self, hold: Hold, store: OptimizerStudyStore, plan: StudyPlan, launcher: Launcher) -> None:
        self._hold = hold
        self._store = store
        self._plan = plan
        self._launcher = launcher

    def run(self, trial: OptimizerTrial) -> OptimizerTrial:
        """Run a trial of the study, store how it ended, and return it.

        Raises:
            StopRequested: The run has to stop, so that no other trial may begin.
        """
        with working_on("study.trial", trial_id=trial.id):
            empty = replace(trial.curve, losses=(), step_times_s=())
            started_at = trial.started_at or self._hold.now()
            attempt = {"attempts": trial.attempts + 1, "started_at": started_at, "curve": empty}
            running = replace(trial, state=TrialState.RUNNING, detail="", **attempt)  # type: ignore[arg-type]  # each its own
            self._keep(running)
            watcher = _Watcher(self._hold, self._store, self._plan, running)
            outcome = self._launcher.run(self._plan.spec(running), watcher)
            ended = self._ended(watcher, outcome)
            ended = replace(ended, finished_at=self._hold.now() if ended.state.finished else None)
            self._keep(ended)
            _log.info("study.trial", state=ended.state.value, detail=candidate_line(ended))
        self._hold.check()
        return ended

    def _keep(self, trial: OptimizerTrial) -> None:
        self._hold.write(lambda lease: self._store.save_trial(trial, lease))

    def _ended(self, watcher: _Watcher, outcome: object) -> OptimizerTrial:
        trial = watcher.trial
        if isinstance(outcome, Stopped) and outcome.reason == "cancelled":
            return replace(trial, state=TrialState.CANCELLED)
        if isinstance(outcome, Stopped) and outcome.reason in _LEFT_ALONE:
            if outcome.reason == "lease_lost":
                raise StopRequested(outcome.reason)
            if outcome.reason == "shutdown" or trial.attempts < _MAX_ATTEMPTS:
                return replace(trial, state=TrialState.QUEUED)
            return replace(
                trial, state=TrialState.FAILED, detail=f"its ranks were lost {trial.attempts} times: {outcome.detail}"
            )
        failure = outcome if isinstance(outcome, TrialFailure) else None
        return self._plan.ended(trial, pruned=watcher.pruned, failure=failure)


class _Watcher(TrialWatcher):
    """Follows one trial: keeps its loss curve, and ends the trial when it reaches the target or falls behind.

    Attributes:
        trial: The trial in its current state.
        pruned: Reason why the trial was ended before its target; None if it was not.
    """

    def __init__(self, hold: Hold, store: OptimizerStudyStore, plan: StudyPlan, trial: OptimizerTrial) -> None:
        self._hold = hold
        self._store = store
        self._plan = plan
        self.trial = trial
        self.pruned: PruneReason | None = None
        self._is_there = False
        self._stored_at = hold.monotonic()

    def on_step(self, step: StepReport) -> None:
        """Add the step to the loss curve, and check if the trial has reached the target or should end early."""
        if self._is_there or self.pruned is not None:
            return  # ranks may report more steps until they have ended
        self.trial = replace(self.trial, curve=self.trial.curve.with_step(step.loss, step.step_time_s))
        self._is_there = self._plan.reached(self.trial) is not None
        self.pruned = None if self._is_there else self._plan.loses(self.trial)

    def on_link_event(self, event: LinkEvent) -> None:
        """Do nothing, because a study simulates no link faults."""

    def on_note(self, note: str) -> None:
        """Log the launcher's note."""
        _log.info("study.note", note=note)

    def on_wait(self, reason: str | None) -> None:
        """Store the reason why the trial waits; None means that it no longer waits."""
        state = TrialState.RUNNING if reason is None else TrialState.WAITING
        self.trial = replace(self.trial, state=state, detail=reason or "")
        self._follow()

    def on_run(self, run: FinishedRun) -> None:
        """Do nothing, because a trial of a study is one run."""

    def on_job(self, job: EngineJob) -> None:
        """Store the state of an engine job, with which the trial continues after an interruption."""
        self.trial = replace(self.trial, jobs=with_job(self.trial.jobs, job))
        self._follow()

    def stop_requested(self) -> Stopped | None:
        """Return why the trial must end, or None.

        It must end if the run must stop, or if the trial reached its target or fell behind.
        """
        if self._hold.monotonic() - self._stored_at >= _FOLLOW_S:
            self._follow()
        if (stopped := self._hold.stopped()) is not None:
            return stopped
        if self._is_there or self.pruned is not None:
            return Stopped(reason="pruned", detail=prune_in_words(self.pruned) if self.pruned else "at the target")
        return None

    def _follow(self) -> None:
        """Store the current state of the running trial."""
        self._stored_at = self._hold.monotonic()
        self._hold.try_to_write(lambda lease: self._store.save_trial(self.trial, lease))
