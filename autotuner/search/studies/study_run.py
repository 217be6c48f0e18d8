"""StudyRun: gives the plan of a study its trials, one after the other, under a lease."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Flag

import structlog

from autotuner.core.errors import LeaseLost
from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.study import OptimizerTrial, StudyState
from autotuner.core.trial import EngineJob, Stopped, TrialFailure, TrialState
from autotuner.ports import Launcher, TrialWatcher
from autotuner.search.studies.hold import StudyHold
from autotuner.search.studies.plan import StudyEnd, StudyPlan
from autotuner.tracing import working_on

_log = structlog.get_logger(__name__)

_LEFT_ALONE = ("shutdown", "lease_lost", "infrastructure")
"""Ends that say nothing of a trial: it is tried again."""

_MAX_ATTEMPTS = 3
"""How often a trial is started whose worker or nodes are lost each time, as of a sweep's."""


class StudyRun:
    """Runs trials until the plan says that the study is over, or the worker is told to stop."""

    def __init__(self, hold: StudyHold, plan: StudyPlan, launcher: Launcher, shutdown: Flag) -> None:
        self._hold = hold
        self._plan = plan
        self._launcher = launcher
        self._shutdown = shutdown

    def run(self) -> None:
        """See the study to its end, or give it back.

        Raises:
            LeaseLost: Another worker has it.
        """
        while not self._shutdown.is_set():
            instruction = self._plan.next()
            is_cancelled = self._hold.study.cancel_requested
            if is_cancelled and not (isinstance(instruction, OptimizerTrial) and _has_jobs(instruction)):
                return self._hold.finish(StudyState.CANCELLED, "cancelled by request")
            if isinstance(instruction, StudyEnd):
                return self._hold.finish(instruction.state, instruction.detail)
            with working_on("study.trial", trial_id=instruction.id):
                self._try(instruction)
        return self._hold.release()

    def _try(self, trial: OptimizerTrial) -> None:
        now = self._hold.now()
        empty = replace(trial.curve, losses=(), step_times_s=())
        running = replace(
            trial,
            state=TrialState.RUNNING,
            attempts=trial.attempts + 1,
            started_at=trial.started_at or now,
            curve=empty,
            detail="",
        )
        self._hold.keep(running)
        watcher = _StudyWatcher(self._hold, self._plan, running, self._shutdown)
        outcome = self._launcher.run(self._plan.spec(running), watcher)
        ended = self._ended(watcher, outcome)
        self._hold.keep(replace(ended, finished_at=self._hold.now() if ended.state.finished else None))
        _log.info("study.trial", state=ended.state.value, detail=ended.detail)

    def _ended(self, watcher: _StudyWatcher, outcome: object) -> OptimizerTrial:
        trial = watcher.trial
        if isinstance(outcome, Stopped) and outcome.reason == "cancelled":
            return replace(trial, state=TrialState.CANCELLED, detail="cancelled by request")
        if isinstance(outcome, Stopped) and outcome.reason in _LEFT_ALONE:
            if outcome.reason == "lease_lost":
                raise LeaseLost(trial.study_id, "this worker")
            if outcome.reason == "shutdown" or trial.attempts < _MAX_ATTEMPTS:
                return replace(trial, state=TrialState.QUEUED)
            return replace(trial, state=TrialState.FAILED, detail=f"lost {trial.attempts} times: {outcome.detail}")
        failure = outcome if isinstance(outcome, TrialFailure) else None
        return self._plan.ended(trial, pruned=watcher.pruned, failure=failure)


def _has_jobs(trial: OptimizerTrial) -> bool:
    """Whether an engine may still run a job of a trial that was interrupted."""
    return any(not job.phase.is_over for job in trial.jobs)


class _StudyWatcher(TrialWatcher):
    """Follows one trial: keeps its curve, and ends it at the target, or where it loses.

    Attributes:
        trial: As it is now.
        pruned: Why it was ended before its target; None where it was not.
    """

    def __init__(self, hold: StudyHold, plan: StudyPlan, trial: OptimizerTrial, shutdown: Flag) -> None:
        self._hold = hold
        self._plan = plan
        self._shutdown = shutdown
        self.trial = trial
        self.pruned: str | None = None
        self._is_there = False

    def on_step(self, step: StepReport) -> None:
        if self._is_there or self.pruned is not None:
            return  # what ranks still did until they were ended
        self.trial = replace(self.trial, curve=self.trial.curve.with_step(step.loss, step.step_time_s))
        self._is_there = self._plan.reached(self.trial) is not None
        self.pruned = None if self._is_there else self._plan.loses(self.trial)

    def on_link_event(self, event: LinkEvent) -> None:
        """No step of a study is under a fault trace."""

    def on_note(self, note: str) -> None:
        _log.info("study.note", note=note)

    def on_wait(self, reason: str | None) -> None:
        state = TrialState.RUNNING if reason is None else TrialState.WAITING
        self.trial = replace(self.trial, state=state, detail=reason or "")
        self._hold.follow(self.trial)

    def on_run(self, run: FinishedRun) -> None:
        """A trial of a study is one run."""

    def on_job(self, job: EngineJob) -> None:
        others = tuple(known for known in self.trial.jobs if known.name != job.name)
        self.trial = replace(self.trial, jobs=(*others, job))
        self._hold.follow(self.trial)

    def stop_requested(self) -> Stopped | None:
        if self._hold.is_due():
            self._hold.follow(self.trial)
        if self._hold.is_lost:
            return Stopped(reason="lease_lost")
        if self._shutdown.is_set():
            return Stopped(reason="shutdown")
        if self._hold.study.cancel_requested:
            return Stopped(reason="cancelled")
        if self._is_there or self.pruned is not None:
            return Stopped(reason="pruned", detail=self.pruned or "at the target")
        return None
