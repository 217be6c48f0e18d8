"""EngineLauncher: trials as jobs of an engine, found again after a restart, waited for, followed, ended and judged."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

import structlog

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.attempts import follow, pass_on
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.engines.attempts import DecoderJob, TrainerJob, TrialJob
from autotuner.launch.engines.engine import Engine, EngineRefused, EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.output import JobOutput
from autotuner.launch.engines.ranks import PEERS_S, EngineRanks
from autotuner.launch.engines.registration import EngineRegistration
from autotuner.launch.local import says_full, work_folder
from autotuner.launch.ranks import CannotRun, launcher_work
from autotuner.launch.reports import TrialFiles
from autotuner.launch.trainers.registration import Registration, refuses_trainer

_ENGINE_SLACK_S = 120.0
"""By which an engine's own limit lies above the trial's, which its nodes hold: Slurm ends jobs to the minute."""

_SLACK_S = 15.0
"""What nodes get to end a trial in good order after its limit, before this side ends the job."""

_POLL_S = 0.2
"""How long a watcher's wish may wait while a job waits."""

_LEAVING_S = 5.0
"""What ranks get to leave by themselves after they have measured: to end a job takes engines longer than that."""

_OF_A_LOST_PEER = (FailureKind.COMMUNICATION, FailureKind.TIMEOUT, FailureKind.CRASH)
"""What ranks die of whose peers' node went away, long before its engine says that it did."""

_LEFT_ALONE = ("shutdown", "lease_lost")
"""Reasons to stop that say nothing of the job: whoever runs the trial next finds it."""

_PORT_TAKEN = "address already in use"
"""Words of the system (EADDRINUSE), which torch repeats: another program was given that port before the ranks met."""

_UNSAFE = re.compile(r"[^a-z0-9]+")

_MOST_OF_AN_ID = 40

T = TypeVar("T")

Result = TypeVar("Result")
"""What a job finds out where all goes well: a measurement, where it runs a trial."""

_log = structlog.get_logger(__name__)


class EngineLauncher:
    """Runs trials as jobs of one engine.

    Args:
        registration: The engine as its operator registered it.
        work_dir: Gets a directory per job that is followed, gone when it is over; of this machine alone.
        trainers: What runs in place of our own decoder where a trial says so, by name.
        engine: In the place of the registration's own.
    """

    def __init__(
        self,
        registration: EngineRegistration,
        work_dir: Path,
        trainers: Mapping[str, Registration] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._registration = registration
        self._settings = registration.settings
        self._work_dir = work_dir
        self._trainers = trainers or {}
        self._engine = engine or registration.engine()

    @property
    def registration(self) -> EngineRegistration:
        """The engine as its operator registered it."""
        return self._registration

    @property
    def engine(self) -> Engine:
        """What runs the jobs."""
        return self._engine

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """A queue that the operator does not let clusters name, what the engine cannot give, an unknown trainer."""
        if trainer is not None and (refusal := refuses_trainer(self._trainers, trainer)):
            return refusal
        return self._registration.refuses(cluster) or self._engine.refuses(self._registration.placed(cluster))

    def capacity(self, cluster: Cluster) -> int:
        """As many as the operator lets wait or run at once; the engine gives each job nodes of its own."""
        del cluster
        return self._settings.max_parallel_trials

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Find the trial's job again or start one, pass its reports on, and say how it ended."""
        return self.run_job(spec, partial(self._job_of, spec), watcher)

    def run_job(
        self, spec: TrialSpec, make: Callable[[TrialFiles], TrialJob[Result]], watcher: TrialWatcher
    ) -> Result | TrialFailure | Stopped:
        """Run whatever ``make`` makes of the files of an attempt, with the trial's id, cluster and limits."""
        name = f"{spec.trial_id}-{uuid4().hex[:8]}"
        try:
            with ExitStack() as folders:
                with launcher_work():
                    files = TrialFiles(folders.enter_context(work_folder(self._work_dir, name)))
                    files.rank_logs.mkdir()
                    files.trainer_reports.mkdir()
                return _Run(self._engine, self._registration, make(files), spec, files, watcher).outcome()
        except CannotRun as error:  # a disk that is full, a work_dir that is gone: that says nothing of the trial
            return Stopped(reason="infrastructure", detail=f"cannot run on {self._registration.name}: {error}")
        except InvalidInput as error:
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run on {self._registration.name}: {error}")
        except EngineRefused as error:
            message = f"{self._registration.name} will not have the job: {error}"
            return TrialFailure(kind=FailureKind.INFRASTRUCTURE, message=message)

    def close(self) -> None:
        """Close the engine; jobs that run go on."""
        self._engine.close()

    def _job_of(self, spec: TrialSpec, files: TrialFiles) -> TrialJob[Measurement]:
        if spec.trainer is None:
            return DecoderJob(spec, files)
        if refusal := refuses_trainer(self._trainers, spec.trainer):
            raise CannotRun(refusal)
        return TrainerJob(self._trainers[spec.trainer.name], spec, files)


class _Run(Generic[Result]):
    """One run of a trial, from the search for its job to its verdict."""

    def __init__(
        self,
        engine: Engine,
        registration: EngineRegistration,
        trial_job: TrialJob[Result],
        spec: TrialSpec,
        files: TrialFiles,
        watcher: TrialWatcher,
    ) -> None:
        if spec.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a trial on an engine")
        self._engine = engine
        self._name = registration.name
        self._settings = registration.settings
        self._trial_job = trial_job
        self._spec = spec
        self._files = files
        self._watcher = watcher
        self._cluster = registration.placed(spec.cluster)

    def outcome(self) -> Result | TrialFailure | Stopped:
        """All of it."""
        known = self._known()
        job = self._patiently(self._placed, has_job=False) if known is None else known
        if isinstance(job, Stopped):
            return job
        try:
            ended, job = self._queued(job)
            outcome = ended or self._followed(job)
        except BaseException:
            self._abandon(job)
            raise
        return outcome

    # ------------------------------------------------------------------ getting a job
    def _known(self) -> EngineJob | None:
        """The job of this run that was stored and is not known to be over."""
        stored = {job.name: job for job in self._spec.jobs if not job.phase.is_over}
        return next((stored[name] for name in _names(self._spec) if name in stored), None)

    def _placed(self) -> EngineJob:
        """The job of this run that nobody stored, or a new one."""
        over = {job.name for job in self._spec.jobs}
        name = next(name for name in _names(self._spec) if name not in over)
        handle, now = self._engine.find(name), time.time()
        if handle is None:
            handle = self._engine.submit(
                JobOrder(
                    name=name,
                    cluster=self._cluster,
                    task=self._trial_job.task(name, self._cluster, self._settings.environment),
                    time_limit_s=self._spec.settings.timeout_s + _ENGINE_SLACK_S,
                )
            )
        return EngineJob(engine=self._name, name=name, handle=handle, submitted_at=now)

    def _patiently(self, ask: Callable[[], T], *, has_job: bool = True) -> T | Stopped:
        """The engine's answer, asked again while it does not answer; or the watcher's wish, or that nobody does."""
        deadline, is_told = time.monotonic() + self._settings.patience_s, False
        tell = self._watcher.on_note if has_job else self._watcher.on_wait
        while True:
            if stopped := self._watcher.stop_requested():
                return stopped
            try:
                answer = ask()
                if is_told and not has_job:
                    self._watcher.on_wait(None)
                return answer
            except EngineUnavailable as error:
                if time.monotonic() > deadline:
                    return Stopped(reason="infrastructure", detail=f"{self._name} does not answer: {error}")
                if not is_told:
                    tell(f"waits for {self._name}, which does not answer: {error}")
                is_told = True
            self._wait(self._settings.poll_s)

    def _wait(self, seconds: float) -> None:
        """Sleep, but no longer than until the watcher wants a stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._watcher.stop_requested():
            time.sleep(min(_POLL_S, seconds))

    # ------------------------------------------------------------------ waiting for its turn
    def _queued(self, job: EngineJob) -> tuple[Stopped | None, EngineJob]:
        """Wait until the job has its accelerators; an outcome where it never gets them."""
        self._watcher.on_job(job)
        look = partial(self._engine.look, job.handle)
        while True:
            status = self._patiently(look)
            if isinstance(status, Stopped):
                return self._stopped(job, status), job
            if status.phase is not EngineJobPhase.QUEUED:
                return None, self._seen(job, status)
            if status.detail != job.detail:
                job = self._seen(job, status)
            if stopped := self._watcher.stop_requested():
                return self._stopped(job, stopped), job
            self._wait(self._settings.poll_s)

    def _seen(self, job: EngineJob, status: JobStatus) -> EngineJob:
        """The job as it is now, which the watcher is told."""
        now = time.time()
        seen = replace(
            job,
            phase=status.phase,
            detail=status.detail,
            started_at=job.started_at or (now if status.phase is EngineJobPhase.RUNNING else None),
            ended_at=job.ended_at or (now if status.phase.is_over else None),
        )
        if seen != job:
            self._watcher.on_job(seen)
        return seen

    def _stopped(self, job: EngineJob, stopped: Stopped) -> Stopped:
        if stopped.reason not in _LEFT_ALONE:
            self._abandon(job)
            self._seen(job, JobStatus(phase=EngineJobPhase.ENDED, detail=stopped.detail))
        return stopped

    def _abandon(self, job: EngineJob) -> None:
        """End a job that nobody will ask for again."""
        try:
            if not self._engine.cancel(job.handle):
                _log.error("engine.job_left", engine=self._name, handle=job.handle)
            self._engine.forget(job.handle)
        except EngineUnavailable as error:
            _log.error("engine.job_left", engine=self._name, handle=job.handle, error=str(error))

    # ------------------------------------------------------------------ while it runs
    def _followed(self, job: EngineJob) -> Result | TrialFailure | Stopped:
        output = JobOutput(
            self._files,
            num_nodes=self._cluster.num_nodes,
            ranks_per_node=self._cluster.accelerators_per_node,
            read=lambda node_rank, offset: self._engine.read(job.handle, node_rank, offset),
            heard=self._trial_job.heard,
        )
        ranks = EngineRanks(
            self._engine,
            job.handle,
            output,
            poll_s=self._settings.poll_s,
            patience_s=self._settings.patience_s,
            status=JobStatus(phase=job.phase, detail=job.detail),
        )
        since_s = max(0.0, time.time() - (job.started_at or time.time()))
        deadline = time.monotonic() + self._spec.settings.timeout_s + _SLACK_S - since_s
        reports = self._trial_job.reports
        ending = follow(self._spec, ranks, reports, self._watcher, deadline=deadline, peers_s=PEERS_S)
        if isinstance(ending, Stopped) and ending.reason in _LEFT_ALONE:
            return ending
        ranks.end(grace_s=min(_LEAVING_S, self._settings.patience_s) if ending == "measured" else 0.0)
        if isinstance(ending, Stopped):
            self._over(job, ranks.status)
            return ending
        pass_on(self._trial_job.last_steps(ranks), self._trial_job.reports, self._watcher)
        with launcher_work():
            judged = self._trial_job.judge(ranks, timed_out=ending == "timeout")
        outcome = self._or_lost(judged, ranks)
        self._over(job, ranks.status)
        return outcome

    def _or_lost(self, outcome: Result | TrialFailure, ranks: EngineRanks) -> Result | TrialFailure | Stopped:
        """What happened to a job whose nodes went away says nothing of the trial, unless it was measured before."""
        if not isinstance(outcome, TrialFailure):
            return outcome
        if outcome.kind in _OF_A_LOST_PEER:
            ranks.miss()
        if ranks.status.phase is EngineJobPhase.LOST:
            return Stopped(reason="infrastructure", detail=f"{self._name} lost the job: {ranks.status.detail}")
        if ranks.is_out_of_reach:
            return Stopped(reason="infrastructure", detail=f"{self._name} no longer answers")
        if _PORT_TAKEN in outcome.log_tail.lower():
            return Stopped(reason="infrastructure", detail="somebody else had the port at which its nodes should meet")
        if outcome.kind == FailureKind.CRASH and says_full(outcome):
            return Stopped(reason="infrastructure", detail=f"the disk of a node is full: {outcome.message}")
        if ranks.status.is_out_of_memory and outcome.kind in (FailureKind.CRASH, FailureKind.COMMUNICATION):
            message = f"{self._name} ended the job for its memory: {ranks.status.detail}"
            return replace(outcome, kind=FailureKind.OOM, message=message)
        return outcome

    def _over(self, job: EngineJob, status: JobStatus) -> None:
        """The job's end, told and forgotten."""
        self._seen(job, status if status.phase.is_over else JobStatus(phase=EngineJobPhase.ENDED))
        try:
            self._engine.forget(job.handle)
        except EngineUnavailable as error:
            _log.warning("engine.not_forgotten", engine=self._name, handle=job.handle, error=str(error))


def job_name(trial_id: str, run: int, number: int) -> str:
    """What the job of a run of a trial is called, the ``number``-th of that run: a DNS label."""
    return f"t-{_UNSAFE.sub('-', trial_id.lower())[:_MOST_OF_AN_ID].strip('-')}-{run}-{number}"


def _names(spec: TrialSpec) -> list[str]:
    """The names that this run's job may have: one more than there are jobs of the trial."""
    return [job_name(spec.trial_id, spec.run, number) for number in range(len(spec.jobs) + 1)]
