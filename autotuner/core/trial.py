"""Trial: one layout that a sweep proposed, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, Self

from autotuner.core.cluster import Cluster
from autotuner.core.convergence_gate import GateOutcome, GateResult, LossGate
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, FinishedRun, Measurement, PhaseTimes, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.value import Count, CountFromZero, Positive, Share, derived, value


class FailureKind(StrEnum):
    """Why a trial died."""

    OOM = "oom"
    TIMEOUT = "timeout"
    COMMUNICATION = "communication"
    NUMERICS = "numerics"
    CRASH = "crash"
    INTERRUPTED = "interrupted"  # the service died around it, more often than it may be tried again
    INFRASTRUCTURE = "infrastructure"  # its nodes were lost or its machine had no room, as often as it may be tried


@value
class TrialFailure:
    """A trial that died."""

    kind: FailureKind
    message: str
    """One line for a table."""
    rank: int | None = None
    """The rank that died first, where it is known."""
    log_tail: str = ""
    """The last lines that rank printed."""


class EngineJobPhase(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"  # accepted; it has no accelerators yet, or its nodes are still being made ready
    RUNNING = "running"
    ENDED = "ended"  # by itself, well or not, or because it was cancelled
    LOST = "lost"  # the engine took its nodes away, or could never start it: that says nothing of the trial

    @property
    def is_over(self) -> bool:
        """No process of it is left."""
        return self in (EngineJobPhase.ENDED, EngineJobPhase.LOST)


@value
class EngineJob:
    """A job of an engine that runs a trial, or one run of it, as it was last seen."""

    engine: str
    """Name of the engine, as its operator registered it."""
    name: str
    """What this side calls it; no other trial, run or attempt has a job of that name."""
    handle: str
    """What the engine calls it: the number of a Slurm job, the name of a Kubernetes object."""
    submitted_at: float
    """Epoch seconds."""
    phase: EngineJobPhase = EngineJobPhase.QUEUED
    detail: str = ""
    """Why it waits, or how it ended, in the engine's words."""
    started_at: float | None = None
    """When it was first seen to have its accelerators; None before."""
    ended_at: float | None = None
    """When it was first seen to be over; None before."""

    def running_s(self, now: float) -> float:
        """How long it has had its accelerators: waiting in a queue is no trial time."""
        if self.started_at is None:
            return 0.0
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def queued_s(self, now: float) -> float:
        """How long it waited for them."""
        ends = (moment for moment in (self.started_at, self.ended_at) if moment is not None)
        return max(0.0, min(ends, default=now) - self.submitted_at)

    def over(self, now: float) -> EngineJob:
        """The job as it stands when its trial has ended, where nobody saw it end."""
        return self if self.phase.is_over else replace(self, phase=EngineJobPhase.ENDED, ended_at=now)


def with_job(jobs: tuple[EngineJob, ...], job: EngineJob) -> tuple[EngineJob, ...]:
    """Return the jobs with this one in the place of what was known of that name, or behind the others."""
    return tuple({**{known.name: known for known in jobs}, job.name: job}.values())


@value
class ScaledTrial:
    """A small run that stands for a layout of a larger job; ``search.sampler.proxy`` says how it is chosen."""

    layout: Layout
    """What runs."""
    num_layers: Count
    """Layers of the model that runs."""
    num_dense_layers: CountFromZero = 0
    """Leading ones without experts among these, in a sparse model."""
    global_batch_size: Count
    """Sequences per step: a replica runs as many micro-batches as in the target."""
    measured_parts: tuple[str, ...] = ()
    """Parts of a step (fields of ``StepTime``) that it runs as the target does: the same shapes and counts, in groups
    of as many ranks over the same kind of link. The others come from the cost model."""
    measurement: Measurement | None = None
    """What it measured, which is not what the layout that it stands for would; None unless the trial is complete."""

    @property
    @derived
    def label(self) -> str:
        """The small layout in short."""
        return str(self.layout)

    @property
    @derived
    def num_ranks(self) -> int:
        """Ranks that it runs on."""
        return self.layout.world_size

    def model(self, whole: TransformerSpec) -> TransformerSpec:
        """The target's model with the layers that run."""
        model = whole.with_num_layers(self.num_layers)
        if model.experts is None:
            return model
        return replace(model, experts=replace(model.experts, num_dense_layers=self.num_dense_layers))

    def job(self, target: Job, cluster: Cluster) -> Job:
        """What runs, as a job of its own.

        Args:
            target: The job that it stands for.
            cluster: Where trials run; it takes a part of it.
        """
        return replace(
            target,
            model=self.model(target.model),
            workload=replace(target.workload, global_batch_size=self.global_batch_size),
            cluster=part_of(cluster, self.num_ranks),
        )


def part_of(cluster: Cluster, num_ranks: int) -> Cluster:
    """So many accelerators of a cluster: some of one node, or whole nodes."""
    per_node = min(num_ranks, cluster.accelerators_per_node)
    return cluster.resized(num_nodes=num_ranks // per_node, accelerators_per_node=per_node)


def time_to_loss_s(trial: Trial, gate: LossGate) -> float | None:
    """Seconds to the loss that a plain layout has behind the steps of a gate of lossy layouts; None where unknown.

    Layouts that change no mathematics need just these steps; what others need, their gate found. The loss is one of
    first steps: it compares layouts, and says nothing of the end of a training.
    """
    if trial.reached is None or not gate.enabled:
        return None
    steps = _steps(trial, gate)
    return None if steps is None else steps * trial.reached.step_time_s


def _steps(trial: Trial, gate: LossGate) -> float | None:
    """Steps to the loss; what a gate of more or fewer steps found counts for as many."""
    if trial.layout.is_equivalent:
        return float(gate.num_lossy_steps)
    found = trial.gate
    if found is None or found.outcome is not GateOutcome.PASSED or found.steps_to_loss is None:
        return None
    return found.steps_to_loss * gate.num_lossy_steps / (found.reference_steps or gate.num_lossy_steps)


class TrialState(StrEnum):
    """Where a trial stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # started, but it has no devices yet: it waits for them, or in the queue of an engine
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """No further change will come, unless it was cut short and its sweep goes on."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING, TrialState.WAITING)

    def to(self, new: TrialState) -> TrialState:
        """``new``, if a trial may go there from here.

        An interrupted run goes from ``running`` or ``waiting`` back to ``queued``: it is tried again. So does a trial
        that was cut short by the end of its sweep, once that goes on.

        Raises:
            Conflict: The step is not legal.
        """
        if new in _NEXT.get(self, ()):
            return new
        raise Conflict(f"a {self.value} trial cannot become {new.value}")


_NEXT: dict[TrialState, tuple[TrialState, ...]] = {
    TrialState.QUEUED: (TrialState.RUNNING, TrialState.CANCELLED),
    TrialState.RUNNING: tuple(state for state in TrialState if state is not TrialState.RUNNING),
    TrialState.WAITING: tuple(TrialState),
    TrialState.CANCELLED: (TrialState.QUEUED,),
}
"""Complete, pruned and failed trials stay what they are."""


@value
class Stopped:
    """A trial that was ended from outside, on purpose."""

    reason: Literal["pruned", "cancelled", "budget", "paused", "lease_lost", "shutdown", "infrastructure"]
    """It lost to the best trial; a user asked; time or accelerator-hours of the sweep ran out; the sweep is paused;
    another worker took the sweep over; the worker shuts down; or its nodes were lost, which says nothing of the
    trial."""
    detail: str = ""
    """The reason with its numbers, as a sentence."""


Outcome = Measurement | TrialFailure | Stopped
"""How a trial ended."""


@value
class Waiting:
    """A started trial that has no devices yet."""

    reason: str
    """What it waits for, as a sentence without a full stop."""
    since: float
    """Epoch seconds."""


def trial_id(sweep_id: str, number: int) -> str:
    """Return the sweep's id and the trial's number; up to 9999 the ids of one sweep sort by number."""
    return f"{sweep_id}-{number:04d}"


@value
class Trial:
    """A trial as it is stored."""

    id: str
    sweep_id: str
    number: int
    """Counts from 0 inside its sweep, in the order the sampler asked."""
    state: TrialState
    layout: Layout
    prediction: Prediction
    attempts: int = 0
    """How often it was started; above 1 after an interruption. Whoever finds a job of it that goes on starts
    nothing."""
    started_at: float | None = None
    """When it began to work: the time that it waited for devices of this machine is left out."""
    finished_at: float | None = None
    steps: tuple[StepReport, ...] = ()
    """Reports of the running or last attempt."""
    measurement: Measurement | None = None
    """None unless the trial is complete, and of one that ran on fewer ranks than its job has: ``scaled`` has its."""
    failure: TrialFailure | None = None
    """None unless the trial failed."""
    stopped: Stopped | None = None
    """Why it was pruned or cancelled; None in records older than this field."""
    gate: GateResult | None = None
    """What the loss gate found, of a layout that changes the mathematics; None where none ran."""
    jobs: tuple[EngineJob, ...] = ()
    """What engines were given for it, in order; empty where it runs on the service's own machine."""
    scaled: ScaledTrial | None = None
    """What runs in the place of the layout, where trials have fewer ranks than their job: steps, measurement and
    failure are of that. None: the layout itself runs."""
    estimate: TrialEstimate | None = None
    """What the layout would reach at full size, of a trial that stands for it and was measured."""
    repeats: int | None = None
    """Number of the trial whose layout it runs again, to be compared; it has no rank of its own. None: it is the first
    of its layout."""
    expected_gain: float | None = None
    """By which fraction a trial was expected to raise the best value when this one was chosen; None where nothing was
    measured before, the layout was not chosen so, and in records older than this field."""
    waiting: Waiting | None = None
    """Why it has no devices yet, and since when; None unless its state is ``waiting``."""
    runs: tuple[FinishedRun, ...] = ()
    """The runs of it that have finished, while the trial has not."""

    @property
    @derived
    def label(self) -> str:
        """The layout in short."""
        return str(self.layout)

    @property
    def ran(self) -> Layout:
        """The layout that runs as the trial: its own, or that of the proxy trial that stands for it."""
        return self.layout if self.scaled is None else self.scaled.layout

    @property
    def ran_measurement(self) -> Measurement | None:
        """What was measured of the layout that ran, its own or that of the proxy trial that stands for it."""
        return self.measurement if self.scaled is None else self.scaled.measurement

    def with_measurement(self, found: Measurement) -> Self:
        """Return the trial with what was measured of the layout that ran."""
        if self.scaled is None:
            return replace(self, measurement=found)
        return replace(self, scaled=replace(self.scaled, measurement=found))

    @property
    def reached(self) -> Measurement | TrialEstimate | None:
        """What it is ranked by: what it measured, or what is estimated of the whole job where less of it ran."""
        return self.measurement if self.scaled is None else self.estimate

    @property
    def is_valid(self) -> bool:
        """Whether its layout may be ranked by it: measured in a format that its hardware has, not known to train worse.

        One that exchanges less than its gradients, or clips them early, has to be known to train as well. One that ran
        on fewer ranks than its job has needs an estimate, too.
        """
        outcome = self.gate and self.gate.outcome
        may_train = outcome is GateOutcome.PASSED if self.layout.needs_passed_gate else outcome != GateOutcome.FAILED
        return self._is_known and may_train

    @property
    def awaits_gate(self) -> bool:
        """Whether it would be ranked if a loss gate passed it, and none looked yet."""
        return self._is_known and self.layout.needs_passed_gate and self.gate is None and self.repeats is None

    @property
    def _is_known(self) -> bool:
        """Whether it was measured in a format that its hardware has."""
        return self.ran_measurement is not None and self.reached is not None and not self.layout.is_emulated

    @property
    @derived
    def gate_outcome(self) -> GateOutcome | None:
        """What the loss gate says of a layout that changes the mathematics; None for any other."""
        if self.gate is not None:
            return self.gate.outcome
        return GateOutcome.NOT_GATED if self.ran_measurement and not self.layout.is_equivalent else None

    @property
    @derived
    def is_ranked(self) -> bool:
        """Whether it has a rank: it is valid, and the first of its layout."""
        return self.is_valid and self.repeats is None

    @property
    def brief(self) -> Self:
        """The trial without steps, finished runs, curves of its loss gate and timelines, as lists show it."""
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
        """Whether an engine's job of it waits or runs: whoever runs the trial next finds that one, and starts none."""
        return any(not job.phase.is_over for job in self.jobs)

    def accelerator_hours(self, now: float) -> float:
        """Ranks x hours of the running or last attempt and of the loss gate; attempts cut short are not counted.

        Waiting does not count. Of jobs of an engine all count, from the moment each had its accelerators.
        """
        gate_hours = self.gate.accelerator_hours if self.gate else 0.0
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs) * self.ran.world_size / 3600 + gate_hours
        return self.worked_s(now) * self.ran.world_size / 3600 + gate_hours

    def worked_s(self, now: float) -> float:
        """Return the seconds that the running or last attempt had devices of the service's own machine."""
        if self.started_at is None:
            return 0.0
        if self.waiting is not None:
            return max(0.0, self.waiting.since - self.started_at)
        ended_at = now if self.finished_at is None else self.finished_at
        return ended_at - self.started_at


@value
class PastTrial:
    """A trial that ran, or ran out of memory, as evidence about the jobs that come after it."""

    job: Job
    """What ran: of a proxy trial its own model, workload and cluster, not those of the job that it stood for; its
    accelerator's memory is what a rank might use, the trial's own budget if that was less."""
    layout: Layout
    """What ran."""
    step_time_s: Positive | None
    """Measured, also of a trial that was pruned; None where it ran out of memory."""
    sweep_id: str
    """The sweep that it belongs to."""
    finished_at: float
    """Epoch seconds."""
    peak_bytes: Positive | None = None
    """That the fullest rank had allocated; None where nobody told."""
    trainer: str | None = None
    """Name of the registered trainer that ran it; None: our own decoder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """As it recorded its own; empty where it recorded none."""
    parts: Breakdown | PhaseTimes | None = None
    """Where its step went, as measured; None where nobody divided it."""
    foreign_share: Share = 0.0
    """Share of the processors that it ran on which other processes used meanwhile, 0..1."""

    def __post_init__(self) -> None:
        if self.layout.world_size != self.job.cluster.world_size:
            rule = "must have as many ranks as the cluster of its job"
            raise InvalidInput("layout", self.layout.world_size, rule, self.job.cluster.world_size)

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether it did; else it ran, and has a step time."""
        return self.step_time_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTime:
    """What a ranked trial says of the order: its step time, measured or estimated, and how well that is known."""

    trial_id: str
    step_time_s: float
    step_time_interval_s: float | None
    """Half the 95 % interval of the step time, from the quartiles where steps were few; None where it is not known."""
    noise_floor: float | None
    """Relative difference of equal runs; None where the trial ran once."""
    repeated_s: tuple[float, ...] = ()
    """Step times of the trials that repeat it."""
    worth_per_step: float = 1.0
    """What divided by the step time is the value that trials are ordered by; the same for all of them where speed alone
    counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsVersion:
    """Changes with whatever the trials of a sweep tell but for their steps."""

    last_event: int
    """Sequence of the last event that tells of more than a step; 0 without one."""
    num_trials: int
    """How many there are."""


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
"""Also said where there are too many threads; a process whose memory is limited lacks memory long before."""

COMMUNICATION = (
    "Connection reset by peer",
    "Connection closed by peer",
    "Connection closed...typically caused by a remote worker crashing",  # gloo of torch 2.13
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",  # gloo, of the message that a rank waits for
    "Application timeout caused pair closure",  # gloo, of all other messages to that peer
    "Unable to find address for",  # gloo, of a network interface that is not there
    "Socket Timeout",
    "wait timeout",  # the rendezvous store
    "NCCL error",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
)
