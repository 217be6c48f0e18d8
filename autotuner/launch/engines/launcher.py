"""EngineLauncher: runs each trial as a job of an engine, and finds the job again after a restart of the service."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

import structlog

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import LEFT_ALONE, CannotRun, Place, Result, TrialWatcher, Work
from autotuner.launch.engines.engine import Engine, EngineRefused, EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.ranks import EngineRanks
from autotuner.launch.engines.registration import EngineRegistration
from autotuner.launch.follow import follow
from autotuner.launch.trainers.registration import RegisteredTrainer, refuses_trainer
from autotuner.launch.work import known_peak, work_of

_ENGINE_SLACK_S = 120.0
"""Seconds by which the engine's time limit exceeds the trial's. The nodes enforce the trial's own limit, and Slurm is
only exact to the minute."""

_SLACK_S = 15.0
"""Seconds that nodes get to end a trial and report after its time limit, before the launcher ends the job."""

_POLL_S = 0.2
"""Seconds within which a launcher that waits for a job notices that the watcher wants to stop."""

_UNSAFE = re.compile(r"[^a-z0-9]+")

_MOST_OF_AN_ID = 40

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class EngineLauncher:
    """The launcher that runs trials as jobs of one engine, such as Slurm or Kubernetes.

    Args:
        registration: The engine as its operator registered it.
        trainers: Training programs that the operator registered, by name. A trial that names one runs it in place of
            the built-in transformer decoder.
        engine: An engine to use; None: the engine that the registration describes.
    """

    def __init__(
        self,
        registration: EngineRegistration,
        trainers: Mapping[str, RegisteredTrainer] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._registration = registration
        self._settings = registration.settings
        self._trainers = trainers or {}
        self._engine = engine or registration.engine()

    @property
    def registration(self) -> EngineRegistration:
        """Return the engine as its operator registered it."""
        return self._registration

    @property
    def engine(self) -> Engine:
        """Return the engine that runs the jobs."""
        return self._engine

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return the reason why the trial cannot run on the engine, or None if it can.

        Reasons are that the operator does not allow the queue, that the engine cannot provide the cluster, or that the
        trainer is not registered.
        """
        if trainer is not None and (refusal := refuses_trainer(self._trainers, trainer)):
            return refusal
        return self._registration.refuses(cluster) or self._engine.refuses(self._registration.placed(cluster))

    def capacity(self, cluster: Cluster) -> int:
        """Return how many jobs may wait or run at the same time; the operator sets this limit.

        Each job has its own nodes.
        """
        del cluster
        return self._settings.max_parallel_trials

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Find the running job of the trial or start a new one, follow it for the watcher, and return the outcome."""
        return self.run_work(partial(self._work, spec), spec, watcher)

    def run_work(
        self, make: Callable[[], Work[Result]], spec: TrialSpec, watcher: TrialWatcher
    ) -> Result | TrialFailure | Stopped:
        """Do any work (such as measuring links) as a job of the engine, and return its result.

        Args:
            make: Creates the work.
            spec: Gives the id, the cluster and the limits of the job.
            watcher: Follows the job.
        """
        name = self._registration.name
        try:
            return _Run(self._engine, self._registration, make(), spec, watcher).outcome()
        except CannotRun as error:
            return Stopped(reason="infrastructure", detail=f"cannot run on {name}: {error}")
        except InvalidInput as error:
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run on {name}: {error}")
        except EngineRefused as error:
            return TrialFailure(kind=FailureKind.INFRASTRUCTURE, message=f"{name} refuses the job: {error}")

    def close(self) -> None:
        """Close the engine. Running jobs continue."""
        self._engine.close()

    def _work(self, spec: TrialSpec) -> Work[Measurement]:
        num_nodes = spec.cluster.num_nodes if spec.cluster else 1
        return work_of(spec, self._trainers, lambda: known_peak(spec), num_nodes=num_nodes)


class _Run(Generic[Result]):
    """One run of a trial, from the search for its job to its outcome."""

    def __init__(
        self,
        engine: Engine,
        registration: EngineRegistration,
        work: Work[Result],
        spec: TrialSpec,
        watcher: TrialWatcher,
    ) -> None:
        if spec.cluster is None:
            raise InvalidInput(
                "cluster", None, "must be given, because an engine runs a trial on the nodes of a cluster"
            )
        self._engine = engine
        self._registration = registration
        self._name = registration.name
        self._settings = registration.settings
        self._work = work
        self._spec = spec
        self._watcher = watcher
        self._cluster = registration.placed(spec.cluster)

    def outcome(self) -> Result | TrialFailure | Stopped:
        """Run this attempt until it ends, and return its measurement, its failure, or why it was stopped."""
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
        """Return the stored job of this run that is not known to be over, or None."""
        stored = {job.name: job for job in self._spec.jobs if not job.phase.is_over}
        return next((stored[name] for name in _names(self._spec) if name in stored), None)

    def _placed(self) -> EngineJob:
        """Submit the job of this run, unless an earlier worker already did without storing it, and return the job."""
        over = {job.name for job in self._spec.jobs}
        name = next(name for name in _names(self._spec) if name not in over)
        handle, now = self._engine.find(name), time.time()
        if handle is None:
            place = Place(
                num_nodes=self._cluster.num_nodes,
                ranks_per_node=self._cluster.accelerators_per_node,
                variables=self._settings.environment,
            )
            handle = self._engine.submit(
                JobOrder(
                    name=name,
                    cluster=self._cluster,
                    task=self._work.task(name, place),
                    time_limit_s=self._spec.settings.timeout_s + _ENGINE_SLACK_S,
                )
            )
        return EngineJob(engine=self._name, name=name, handle=handle, submitted_at=now)

    def _patiently(self, ask: Callable[[], T], *, has_job: bool = True) -> T | Stopped:
        """Ask the engine, and ask again while it is unavailable; return its answer.

        Return ``Stopped`` instead if the watcher wants to stop, or if the engine stays silent beyond ``patience_s``.
        """
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

    # ------------------------------------------------------------------ waiting in the queue
    def _queued(self, job: EngineJob) -> tuple[Stopped | None, EngineJob]:
        """Wait until the job has its accelerators; return the job, and the reason if the wait was stopped before."""
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
        """Return the job with its new state; report it to the watcher if it changed."""
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
        if stopped.reason not in LEFT_ALONE:
            self._abandon(job)
            self._seen(job, JobStatus(phase=EngineJobPhase.ENDED, detail=stopped.detail))
        return stopped

    def _abandon(self, job: EngineJob) -> None:
        """End a job that no worker will look for again."""
        try:
            if not self._engine.cancel(job.handle):
                _log.error("engine.job_left", engine=self._name, handle=job.handle)
            self._engine.forget(job.handle)
        except EngineUnavailable as error:
            _log.error("engine.job_left", engine=self._name, handle=job.handle, error=str(error))

    # ------------------------------------------------------------------ while it runs
    def _followed(self, job: EngineJob) -> Result | TrialFailure | Stopped:
        ranks = EngineRanks(
            self._engine,
            self._registration,
            job.handle,
            num_nodes=self._cluster.num_nodes,
            ranks_per_node=self._cluster.accelerators_per_node,
            status=JobStatus(phase=job.phase, detail=job.detail),
        )
        since_s = max(0.0, time.time() - (job.started_at or time.time()))
        deadline = time.monotonic() + self._spec.settings.timeout_s + _SLACK_S - since_s
        outcome = follow(self._work, ranks, self._watcher, deadline=deadline)
        if not (isinstance(outcome, Stopped) and outcome.reason in LEFT_ALONE):
            self._over(job, ranks.status)
        return outcome

    def _over(self, job: EngineJob, status: JobStatus) -> None:
        """Report the job's end, and delete the engine's record of it."""
        self._seen(job, status if status.phase.is_over else JobStatus(phase=EngineJobPhase.ENDED))
        try:
            self._engine.forget(job.handle)
        except EngineUnavailable as error:
            _log.warning("engine.not_forgotten", engine=self._name, handle=job.handle, error=str(error))


def job_name(trial_id: str, run: int, number: int) -> str:
    """Return the name of a job as a DNS label, such as ``t-17-0-1`` for job 1 of run 0 of trial 17."""
    return f"t-{_UNSAFE.sub('-', trial_id.lower())[:_MOST_OF_AN_ID].strip('-')}-{run}-{number}"


def _names(spec: TrialSpec) -> list[str]:
    """Return the names that a job of this run may have: one for each job of the trial, and one for a new job."""
    return [job_name(spec.trial_id, spec.run, number) for number in range(len(spec.jobs) + 1)]
