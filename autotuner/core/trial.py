"""Trial: one layout that a sweep proposed, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, Self

from autotuner.core.cluster import Cluster
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, FinishedRun, Measurement, PhaseTimes, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.value import Count, CountFromZero, Positive, Share, derived, value


class FailureKind(StrEnum):
    """The kinds of failures of a trial, such as running out of memory (``oom``), a timeout or a crash."""

    OOM = "oom"
    TIMEOUT = "timeout"
    COMMUNICATION = "communication"
    NUMERICS = "numerics"
    CRASH = "crash"
    INTERRUPTED = "interrupted"  # the service died during the trial, more often than the trial may be tried again
    # the trial's nodes were lost or its machine was full, as often as it may be tried
    INFRASTRUCTURE = "infrastructure"


@value
class TrialFailure:
    """The failure of a trial: its kind, a message, and the last output of the rank that failed."""

    kind: FailureKind
    message: str
    """Message of one line, which fits into a table."""
    rank: int | None = None
    """Rank that failed first; None if it is not known."""
    log_tail: str = ""
    """Last lines that the failed rank printed."""


class EngineJobPhase(StrEnum):
    """The phases of a job on an engine (a system that starts trials, such as Slurm)."""

    QUEUED = "queued"  # accepted; it has no accelerators yet, or its nodes are still being made ready
    RUNNING = "running"
    ENDED = "ended"  # the job ended by itself, with or without success, or was cancelled
    LOST = "lost"  # the engine took the nodes away or could not start the job; this says nothing about the trial

    @property
    def is_over(self) -> bool:
        """True if no process of the job is left."""
        return self in (EngineJobPhase.ENDED, EngineJobPhase.LOST)


@value
class EngineJob:
    """A job on an engine (such as Slurm) that runs a trial or one run of it, in the state that was seen last."""

    engine: str
    """Name of the engine, as its operator registered it."""
    name: str
    """Name that this product gave the job. No other trial, run or attempt has a job of that name."""
    handle: str
    """Name that the engine gave the job: the number of a Slurm job, or the name of a Kubernetes object."""
    submitted_at: float
    """Time when the job was submitted, in epoch seconds."""
    phase: EngineJobPhase = EngineJobPhase.QUEUED
    detail: str = ""
    """Reason why the job waits, or how it ended, in the engine's words."""
    started_at: float | None = None
    """Time when the job was first seen with its accelerators, in epoch seconds; None before."""
    ended_at: float | None = None
    """Time when the job was first seen to have ended, in epoch seconds; None before."""

    def running_s(self, now: float) -> float:
        """Return the seconds for which the job has had its accelerators until ``now``, without waiting time.

        ``now`` is in epoch seconds.
        """
        if self.started_at is None:
            return 0.0
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def queued_s(self, now: float) -> float:
        """Return the seconds that the job waited for its accelerators until ``now`` (epoch seconds)."""
        ends = (moment for moment in (self.started_at, self.ended_at) if moment is not None)
        return max(0.0, min(ends, default=now) - self.submitted_at)

    def over(self, now: float) -> EngineJob:
        """Return the job as one that is over: unchanged if it is over already, otherwise ended at ``now``.

        The time ``now`` is in epoch seconds. It counts as the end of a job whose end nobody recorded.
        """
        return self if self.phase.is_over else replace(self, phase=EngineJobPhase.ENDED, ended_at=now)


def with_job(jobs: tuple[EngineJob, ...], job: EngineJob) -> tuple[EngineJob, ...]:
    """Return the jobs with this job added; it replaces a job of the same name."""
    return tuple({**{known.name: known for known in jobs}, job.name: job}.values())


@value
class ProxyTrial:
    """A proxy trial: a small trial that stands for a layout of a larger job. ``search.sampler.proxy`` chooses it."""

    layout: Layout
    """Layout that the proxy trial runs."""
    num_layers: Count
    """Number of layers of the model that the proxy trial runs."""
    num_dense_layers: CountFromZero = 0
    """Number of leading layers without experts among ``num_layers``, in a sparse model."""
    global_batch_size: Count
    """Sequences per step of the proxy trial. A replica runs as many micro-batches as in the job."""
    measured_parts: tuple[str, ...] = ()
    """Parts of a step (fields of ``StepTime``) that are the same in the proxy trial and in the job: with the same
    shapes and counts, in groups of as many ranks over the same kind of link. The other parts come from the cost
    model."""
    measurement: Measurement | None = None
    """Measurement of the proxy trial, which differs from a measurement of the layout in the job; None unless the trial
    is complete."""

    @property
    @derived
    def label(self) -> str:
        """The name of the small layout that the proxy trial runs in place of the full-size layout."""
        return str(self.layout)

    @property
    @derived
    def num_ranks(self) -> int:
        """The number of ranks that the proxy trial runs on, which is smaller than that of the full-size layout."""
        return self.layout.world_size

    def model(self, whole: TransformerSpec) -> TransformerSpec:
        """Return the model that the proxy trial (a small trial) runs: the given model with fewer layers."""
        model = whole.with_num_layers(self.num_layers)
        if model.experts is None:
            return model
        return replace(model, experts=replace(model.experts, num_dense_layers=self.num_dense_layers))

    def job(self, target: Job, cluster: Cluster) -> Job:
        """Return the job that the proxy trial (a small trial) runs: fewer layers, its own batch, a part of the cluster.

        Args:
            target: The job that the proxy trial stands for.
            cluster: The cluster that trials run on. The job gets a part of it.
        """
        return replace(
            target,
            model=self.model(target.model),
            workload=replace(target.workload, global_batch_size=self.global_batch_size),
            cluster=part_of(cluster, self.num_ranks),
        )


def part_of(cluster: Cluster, num_ranks: int) -> Cluster:
    """Return a part of a cluster with ``num_ranks`` accelerators: some accelerators of one node, or whole nodes."""
    per_node = min(num_ranks, cluster.accelerators_per_node)
    return cluster.resized(num_nodes=num_ranks // per_node, accelerators_per_node=per_node)


def time_to_loss_s(trial: Trial, gate: ConvergenceGate) -> float | None:
    """Return the seconds that the trial's layout needs to reach the loss of a plain layout in a convergence gate.

    None means that this is not known. The plain layout trains ``num_lossy_steps`` steps in the gate. A numerically
    equivalent layout needs equally many steps. For another layout, its own convergence gate measured the number of
    steps. The gate ends after few steps, so that its loss is still high. Therefore the time only compares layouts with
    each other, and does not predict the end of a training.

    Args:
        trial: A trial.
        gate: Settings of the sweep's convergence gate.
    """
    if trial.reached is None or not gate.enabled:
        return None
    steps = _steps(trial, gate)
    return None if steps is None else steps * trial.reached.step_time_s


def _steps(trial: Trial, gate: ConvergenceGate) -> float | None:
    """Return the candidate's number of steps to the loss.

    The result of a gate with another number of steps is scaled.
    """
    if trial.layout.is_equivalent:
        return float(gate.num_lossy_steps)
    found = trial.gate
    if found is None or found.outcome is not GateOutcome.PASSED or found.steps_to_loss is None:
        return None
    return found.steps_to_loss * gate.num_lossy_steps / (found.reference_steps or gate.num_lossy_steps)


class TrialState(StrEnum):
    """The states of a trial: queued, running or waiting for devices; then complete, pruned, failed or cancelled.

    A pruned trial was ended early, because it was too slow.
    """

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # started, but the trial waits for devices or in the queue of an engine
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """True if the trial has ended.

        The state of an ended trial changes only if the end of its sweep cut the trial short, and the sweep is opened
        again.
        """
        return self not in (TrialState.QUEUED, TrialState.RUNNING, TrialState.WAITING)

    def to(self, new: TrialState) -> TrialState:
        """Return the state ``new``, after a check that a trial in this state may change to it.

        An interrupted trial goes from ``running`` or ``waiting`` back to ``queued``, and is tried again. A trial that
        was cut short by the end of its sweep also goes back to ``queued`` when the sweep is opened again.

        Raises:
            Conflict: A trial may not change from this state to the new one.

        Example:
            >>> TrialState.QUEUED.to(TrialState.RUNNING).value
            'running'
            >>> TrialState.COMPLETE.to(TrialState.RUNNING)
            Traceback (most recent call last):
            ...
            autotuner.core.errors.Conflict: a trial in the state complete cannot change to running
        """
        if new in _NEXT.get(self, ()):
            return new
        raise Conflict(f"a trial in the state {self.value} cannot change to {new.value}")


_NEXT: dict[TrialState, tuple[TrialState, ...]] = {
    TrialState.QUEUED: (TrialState.RUNNING, TrialState.CANCELLED),
    TrialState.RUNNING: tuple(state for state in TrialState if state is not TrialState.RUNNING),
    TrialState.WAITING: tuple(TrialState),
    TrialState.CANCELLED: (TrialState.QUEUED,),
}
"""Legal changes of a trial's state. Complete, pruned and failed trials never change again."""


@value
class Stopped:
    """The reason why a trial was stopped on purpose, before its end."""

    reason: Literal["pruned", "cancelled", "budget", "paused", "lease_lost", "shutdown", "infrastructure"]
    """Reason of the stop: the trial was slower than the best trial; a user cancelled it; time or accelerator-hours of
    the sweep ran out; the sweep was paused; another worker took over the sweep; the worker shut down; or the trial's
    nodes were lost, which says nothing about the layout."""
    detail: str = ""
    """Reason of the stop with its numbers, as a sentence."""


Outcome = Measurement | TrialFailure | Stopped
"""Result with which a trial ends."""


@value
class Waiting:
    """The reason why a started trial has no devices yet, and the time when its wait began."""

    reason: str
    """Reason why the trial waits, as a sentence without a full stop."""
    since: float
    """Time since when the trial waits, in epoch seconds."""


def trial_id(sweep_id: str, number: int) -> str:
    """Return the id of a trial: the id of its sweep and its number, which has at least four digits.

    So the ids of the first 10,000 trials of a sweep are in the order of their numbers.
    """
    return f"{sweep_id}-{number:04d}"


@value
class Trial:
    """A trial of a sweep, as it is stored: one layout that is run and measured."""

    id: str
    sweep_id: str
    number: int
    """Number of the trial inside its sweep, from 0, in the order in which the sampler chose the trials."""
    state: TrialState
    layout: Layout
    prediction: Prediction
    attempts: int = 0
    """Number of times the trial was started; above 1 after an interruption. A worker that finds a running job of the
    trial starts no other."""
    started_at: float | None = None
    """Time when the trial began to run, in epoch seconds, without the wait for devices of this machine."""
    finished_at: float | None = None
    steps: tuple[StepReport, ...] = ()
    """Reports of the steps of the running or last attempt."""
    measurement: Measurement | None = None
    """Measurement of the layout; None unless the trial is complete. The measurement of a proxy trial is in
    ``proxy``."""
    failure: TrialFailure | None = None
    """Failure of the trial; None unless it failed."""
    stopped: Stopped | None = None
    """Reason why the trial was pruned or cancelled; None otherwise, and in records older than this field."""
    gate: GateResult | None = None
    """Result of the convergence gate for a layout that is not numerically equivalent; None if no gate ran."""
    jobs: tuple[EngineJob, ...] = ()
    """Jobs that were submitted to engines for the trial, in order; empty if it runs on the service's own machine."""
    proxy: ProxyTrial | None = None
    """Proxy trial that runs instead of the layout, if trials run on fewer ranks than the job. Steps, measurement and
    failure are then the proxy's. None: the layout itself runs."""
    estimate: TrialEstimate | None = None
    """Estimate of the layout at full size, from a measured proxy trial."""
    repeats: int | None = None
    """Number of the trial whose layout this trial runs again for a comparison. Such a repeat is not ranked. None: the
    layout has not run before."""
    expected_gain: float | None = None
    """Expected relative improvement of the best value when this trial was chosen. None if nothing was measured before,
    if the layout was not chosen by expected improvement, and in records older than this field."""
    waiting: Waiting | None = None
    """Reason why the trial has no devices yet, and since when; None unless its state is ``waiting``."""
    runs: tuple[FinishedRun, ...] = ()
    """Runs of the trial that have finished, while the trial has not."""

    @property
    @derived
    def label(self) -> str:
        """The name of the trial's layout."""
        return str(self.layout)

    @property
    def ran(self) -> Layout:
        """The layout that really runs: the trial's own layout, or the smaller layout of its proxy trial.

        A proxy trial runs on few ranks, and stands for a layout that needs a larger cluster.
        """
        return self.layout if self.proxy is None else self.proxy.layout

    @property
    def ran_measurement(self) -> Measurement | None:
        """The measurement of the layout that really ran: the own layout, or the smaller one of the proxy trial.

        None means that there is no measurement yet.
        """
        return self.measurement if self.proxy is None else self.proxy.measurement

    def with_measurement(self, found: Measurement) -> Self:
        """Return the trial with this measurement of the layout that really ran (its own, or its proxy trial's)."""
        if self.proxy is None:
            return replace(self, measurement=found)
        return replace(self, proxy=replace(self.proxy, measurement=found))

    @property
    def reached(self) -> Measurement | TrialEstimate | None:
        """The result that the trial is ranked by; None if there is none yet.

        The result is the measurement or, if a proxy trial ran, the estimate for the full-size layout.
        """
        return self.measurement if self.proxy is None else self.estimate

    @property
    def is_valid(self) -> bool:
        """True if the trial may be ranked: its hardware has the number format, and no convergence gate excludes it.

        A convergence gate is a short training that compares losses. A layout whose replicas exchange less than their
        gradients, or clip them early, must have passed its gate. Any other layout must not have failed one.
        """
        outcome = self.gate and self.gate.outcome
        may_train = outcome is GateOutcome.PASSED if self.layout.needs_passed_gate else outcome != GateOutcome.FAILED
        return self._is_known and may_train

    @property
    def awaits_gate(self) -> bool:
        """True if the trial only lacks a convergence gate (a short training that compares losses) to have a rank.

        No gate has run for the trial yet, and the trial would have a rank if it passed one.
        """
        return self._is_known and self.layout.needs_passed_gate and self.gate is None and self.repeats is None

    @property
    def _is_known(self) -> bool:
        """True if the layout was measured in a number format that the hardware has, not in an emulated one."""
        return self.ran_measurement is not None and self.reached is not None and not self.layout.is_emulated

    @property
    @derived
    def gate_outcome(self) -> GateOutcome | None:
        """The outcome of the trial's convergence gate (a short training that compares losses).

        None means that the layout needs no gate, or was not measured yet.
        """
        if self.gate is not None:
            return self.gate.outcome
        return GateOutcome.NOT_GATED if self.ran_measurement and not self.layout.is_equivalent else None

    @property
    @derived
    def is_ranked(self) -> bool:
        """True if the trial has a rank: it may be ranked, and its layout is not the layout of an earlier trial."""
        return self.is_valid and self.repeats is None

    @property
    def brief(self) -> Self:
        """The trial as lists show it: without steps, finished runs, loss curves and timelines."""
        gate = self.gate
        if gate is not None:
            gate = replace(gate, candidate_losses=(), reference_losses=())
        short = replace(self, steps=(), runs=(), gate=gate)
        found = self.ran_measurement
        return (
            short if found is None or found.timeline is None else short.with_measurement(replace(found, timeline=None))
        )

    @property
    def job_goes_on(self) -> bool:
        """True if a job of the trial still waits or runs on an engine such as Slurm.

        A worker that takes over the trial then watches this job, and starts no new one.
        """
        return any(not job.phase.is_over for job in self.jobs)

    def accelerator_hours(self, now: float) -> float:
        """Return the accelerator-hours that the trial's latest attempt and its convergence gate used until ``now``.

        Waiting time and earlier attempts do not count. If engines run the trial, all of its jobs count, each from the
        moment when it had its accelerators.
        """
        gate_hours = self.gate.accelerator_hours if self.gate else 0.0
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs) * self.ran.world_size / 3600 + gate_hours
        return self.worked_s(now) * self.ran.world_size / 3600 + gate_hours

    def worked_s(self, now: float) -> float:
        """Return the seconds until ``now`` (epoch seconds) for which the trial's latest attempt has used its devices.

        The number is for a trial on the service's own machine. On an engine such as Slurm, the trial's ``jobs`` record
        their own times.
        """
        if self.started_at is None:
            return 0.0
        if self.waiting is not None:
            return max(0.0, self.waiting.since - self.started_at)
        ended_at = now if self.finished_at is None else self.finished_at
        return ended_at - self.started_at


@value
class PastTrial:
    """A stored trial that was measured or ran out of memory. Predictions for later jobs learn from it."""

    job: Job
    """Job that ran. For a proxy trial, this is the proxy's model, workload and cluster. The memory of its accelerator
    is the memory that a rank could use, or the trial's own memory limit if that was less."""
    layout: Layout
    """Layout that ran."""
    step_time_s: Positive | None
    """Measured step time, also of a pruned trial; None if the trial ran out of memory."""
    sweep_id: str
    """Id of the trial's sweep."""
    finished_at: float
    """Time when the trial finished, in epoch seconds."""
    peak_bytes: Positive | None = None
    """Peak bytes of the rank with most memory; None if it was not reported."""
    trainer: str | None = None
    """Name of the registered trainer that ran the trial; None: the product's own decoder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment as the trial recorded it; empty if it recorded none."""
    parts: Breakdown | PhaseTimes | None = None
    """Measured time of each part of the trial's step; None if the step was not divided."""
    foreign_share: Share = 0.0
    """Share of the trial's processors that other processes used during the trial, 0..1."""

    def __post_init__(self) -> None:
        if self.layout.world_size != self.job.cluster.world_size:
            rule = "must have as many ranks as the cluster of the job has accelerators"
            raise InvalidInput("layout", self.layout.world_size, rule, self.job.cluster.world_size)

    @property
    def ran_out_of_memory(self) -> bool:
        """True if the trial ran out of memory; otherwise it has a step time."""
        return self.step_time_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTime:
    """The step time of a ranked trial, measured or estimated, with its errors."""

    trial_id: str
    step_time_s: float
    step_time_interval_s: float | None
    """Half of the 95 % interval of the step time, computed from the quartiles if there were few steps; None if it is
    not known."""
    noise_floor: float | None
    """Relative difference between equal runs; None if the trial ran once."""
    repeated_s: tuple[float, ...] = ()
    """Step times of the trials that ran the same layout again."""
    value_per_step: float = 1.0
    """Number from which the ranking value is computed: this number divided by the step time. It is the same for all
    trials if only speed counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsVersion:
    """A version number of a sweep's trials. It changes with every change of a trial, except when a step is reported."""

    last_event: int
    """Number of the last event that changes more than a trial's steps; 0 without such an event."""
    num_trials: int
    """Number of trials of the sweep."""


OUT_OF_MEMORY = (
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",  # the same on other platforms
    "std::bad_alloc",
    "Cannot allocate memory",  # strerror(ENOMEM), from libraries that allocate for themselves
    "out of memory",  # CUDA's allocator, its runtime (a context, pinned memory), NCCL and Triton
    "_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN
)

OUT_OF_LIMITED_MEMORY = (
    "Resource temporarily unavailable",  # strerror(EAGAIN): the kernel has no room for the stack of a new thread
    "can't start new thread",  # Python's words for that
)
"""Messages that can also mean too many threads. A process with limited memory reports them long before that, when it
lacks memory."""

COMMUNICATION = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection closed...typically caused by a remote worker crashing",  # gloo of torch 2.13
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",  # gloo, about the message that a rank waits for
    "Application timeout caused pair closure",  # gloo, about all other messages to that peer
    "Unable to find address for",  # gloo, about a network interface that does not exist
    "Socket Timeout",
    "wait timeout",  # the rendezvous store
    "NCCL error",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)
