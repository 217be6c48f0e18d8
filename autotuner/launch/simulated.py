"""SimulatedLauncher: simulated trials for dry runs of a sweep, demonstrations and tests of any size."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotuner.core.cluster import SIMULATED, Cluster
from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.core.units import format_bytes, format_seconds
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.simulation import SCENARIOS, Luck, Scenario, Truth, run_of, truth_of

_NAP_S = 0.1
"""Seconds within which a simulated trial notices that the watcher wants to stop."""

_LOSS_NOISE = 0.002
"""Relative noise of the loss from step to step: less than a convergence gate tolerates."""


class SimulatedLauncher:
    """The launcher that simulates trials on clusters of any size.

    Simulated trials use predicted times, with seeded random noise, failures and waits.

    All results are marked as simulated (``Measurement.is_simulated``, and the messages of failures). They prove nothing
    about real hardware.

    Args:
        scenarios: Behaviour of trials, by the queue that a cluster names. A cluster that names no queue gets the first
            one.
        seed: Seed of the random draws, in addition to the trial's own.
        capacity: Number of trials of any size that may run at the same time.
    """

    def __init__(self, scenarios: Mapping[str, Scenario] = SCENARIOS, *, seed: int = 0, capacity: int = 16) -> None:
        self._scenarios = scenarios
        self._seed = seed
        self._capacity = capacity
        self._handles = itertools.count(1)

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return the reason why the trial cannot be simulated: its cluster names a queue without a scenario; else None.

        Clusters of every size and every trainer can be simulated.
        """
        del trainer
        if not cluster.queue or cluster.queue in self._scenarios:
            return None
        known = ", ".join(self._scenarios)
        return f"the engine {SIMULATED} has no queue {cluster.queue}; its queues are {known}"

    def capacity(self, cluster: Cluster) -> int:
        """Return the number of trials that may run at the same time, as given to the constructor, for any cluster."""
        del cluster
        return self._capacity

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Simulate the trial without any rank, and return a measurement or failure that is marked as simulated."""
        if spec.cluster is None:
            return _failure(FailureKind.CRASH, "the trial names no cluster to simulate it on")
        if refusal := self.refuses(spec.cluster):
            return _failure(FailureKind.CRASH, refusal)
        scenario = self._scenarios[spec.cluster.queue or next(iter(self._scenarios))]
        job = _job_of(spec, self._handles)
        return _Run(spec, spec.cluster, scenario, Luck(spec, self._seed), watcher, job).outcome()

    def close(self) -> None:
        """Do nothing, because a simulation keeps no process between trials."""


class _Run:
    """A run of a simulated trial, whose time passes as fast as its scenario says."""

    def __init__(
        self,
        spec: TrialSpec,
        cluster: Cluster,
        scenario: Scenario,
        luck: Luck,
        watcher: TrialWatcher,
        job: EngineJob,
    ) -> None:
        self._spec = spec
        self._cluster = cluster
        self._scenario = scenario
        self._luck = luck
        self._watcher = watcher
        self._trial_s = 0.0  # seconds since the job has its accelerators
        self._job = job

    def outcome(self) -> Outcome:
        """Simulate the trial from the queue to its last step and return its outcome."""
        self._watcher.on_job(self._job)
        if stopped := self._passed(self._scenario.queue_s):
            return self._over(stopped)
        self._job = replace(self._job, phase=EngineJobPhase.RUNNING, detail="", started_at=time.time())
        self._watcher.on_job(self._job)
        truth = truth_of(self._spec, self._cluster, self._scenario, self._luck)
        return self._over(self._dies_early(truth) or self._trained(truth))

    # ------------------------------------------------------------------ the outcome
    def _dies_early(self, truth: Truth) -> TrialFailure | Stopped | None:
        """Simulate the start of the trial; return the failure or the stop if one ends it before its first step."""
        scenario, attempt = self._scenario, len(self._spec.jobs)
        if self._luck.share(f"lost {attempt}") < scenario.lost_nodes:
            lost = Stopped(reason="infrastructure", detail=f"simulated: a node of {self._cluster.name} was lost")
            return self._worked(scenario.start_s) or lost
        if ended := self._worked(scenario.start_s):
            return ended
        if self._luck.share("crash") < scenario.crashes:
            return _failure(FailureKind.CRASH, "a rank died before its first step")
        if truth.peak_bytes > self._limit_bytes():
            needs, has = format_bytes(truth.peak_bytes), format_bytes(self._limit_bytes())
            return _failure(FailureKind.OOM, f"a rank needs {needs}, but it has {has}")
        if self._luck.share("hang") < scenario.hangs:
            return self._worked(math.inf)
        return None

    def _trained(self, truth: Truth) -> Measurement | TrialFailure | Stopped:
        """Simulate every step: as few measured steps as the settings allow, then those under its fault trace."""
        settings, series = self._spec.settings, self._luck.series(f"steps {run_of(self._spec)}")
        num_healthy = settings.warmup_steps + settings.measured_steps
        times_s: list[float] = []
        losses: list[float] = []
        for step, expected_s in enumerate((*(truth.step_time_s,) * num_healthy, *truth.faulty_steps_s)):
            time_s = expected_s * math.exp(self._scenario.step_noise * series.gauss(0.0, 1.0))
            if ended := self._worked(time_s):
                return ended
            losses.append(_loss(self._spec.model.vocab_size, step) * math.exp(_LOSS_NOISE * series.gauss(0.0, 1.0)))
            is_faulty = step >= num_healthy
            self._watcher.on_step(truth.step(self._spec, step, time_s, losses[-1], is_under_trace=is_faulty))
            times_s.append(time_s)
        healthy_s, faulty_s = times_s[settings.warmup_steps : num_healthy], times_s[num_healthy:]
        return self._watcher.stop_requested() or truth.measurement(self._spec, healthy_s, losses, faulty_s)

    def _limit_bytes(self) -> float:
        """Return the bytes that a rank may hold."""
        limits = (self._spec.settings.memory_budget_bytes, self._spec.memory_bytes)
        return min((limit for limit in limits if limit is not None), default=math.inf)

    # ------------------------------------------------------------------ time
    def _worked(self, seconds: float) -> TrialFailure | Stopped | None:
        """Let the trial run for some simulated seconds; return how it ended, or None if it goes on.

        It ends at its time limit or when the watcher wants a stop.
        """
        limit_s = self._spec.settings.timeout_s
        left_s = limit_s - self._trial_s
        self._trial_s += min(seconds, left_s)
        stopped = self._passed(min(seconds, left_s))
        if stopped or seconds <= left_s:
            return stopped
        return _failure(FailureKind.TIMEOUT, f"no result after {format_seconds(limit_s)}")

    def _passed(self, seconds: float) -> Stopped | None:
        """Let simulated time pass at the scenario's speed; return the watcher's stop if there is one."""
        ends_at = time.monotonic() + seconds / self._scenario.speed
        while not (stopped := self._watcher.stop_requested()) and (left_s := ends_at - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
        return stopped

    def _over(self, outcome: Outcome) -> Outcome:
        """Report the job's end to the watcher, with times in simulated seconds, and return the outcome."""
        phase, detail = EngineJobPhase.ENDED, ""
        if isinstance(outcome, Stopped):
            if outcome.reason in ("shutdown", "lease_lost"):
                return outcome
            if outcome.reason == "infrastructure":
                phase, detail = EngineJobPhase.LOST, outcome.detail
        waited_until = self._job.submitted_at + self._scenario.queue_s
        has_run = self._job.started_at is not None
        ended = replace(
            self._job,
            phase=phase,
            detail=detail,
            started_at=waited_until if has_run else None,
            ended_at=waited_until + self._trial_s if has_run else time.time(),
        )
        self._watcher.on_job(ended)
        return outcome


def _loss(vocab_size: int, step: int) -> float:
    """Return the loss at a step on a curve that starts at the loss of an untrained model."""
    return math.log(vocab_size) * (0.6 + 0.4 / (1.0 + step / 50.0))


def _job_of(spec: TrialSpec, handles: Iterator[int]) -> EngineJob:
    """Return the job that an earlier worker of the trial began, put back into the queue; else a new job."""
    for job in spec.jobs:
        if not job.phase.is_over:
            return replace(job, phase=EngineJobPhase.QUEUED, started_at=None)
    name = f"{spec.trial_id}-{spec.run}-{len(spec.jobs)}"
    return EngineJob(engine=SIMULATED, name=name, handle=str(next(handles)), submitted_at=time.time())


def _failure(kind: FailureKind, message: str) -> TrialFailure:
    return TrialFailure(kind=kind, message=f"simulated: {message}")
