"""Optimizer study: a search of an optimizer's own parameters by the loss that they reach.

Every batch is new to the model when its loss is computed, so that losses of a training are those of validation, but for
the noise of a batch. To compare batches of different sizes, a loss is the mean over about as many sequences.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from autotuner.core.choices import ShardLevel
from autotuner.core.cluster import SIMULATED, Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.run import Run
from autotuner.core.trial import EngineJob, TrialState
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings, TrialSettings
from autotuner.core.value import Count, CountFromZero, Positive, derived, value


@value
class LossCurve:
    """Losses by step."""

    losses: tuple[float, ...] = ()
    """One per step, of the mean over the batch before the step's update."""
    step_times_s: tuple[float, ...] = ()
    """One per step."""
    global_batch_size: int
    """Sequences of a step."""

    def with_step(self, loss: float, step_time_s: float) -> LossCurve:
        """With one step more."""
        losses, times = (*self.losses, loss), (*self.step_times_s, step_time_s)
        return LossCurve(losses=losses, step_times_s=times, global_batch_size=self.global_batch_size)

    @property
    @derived
    def num_steps(self) -> int:
        """Steps by now."""
        return len(self.losses)

    @property
    def num_samples(self) -> int:
        """Sequences by now."""
        return self.num_steps * self.global_batch_size

    @property
    @derived
    def step_time_s(self) -> float:
        """Median of all steps but the first, which allocates and compiles; 0 before there is one."""
        return statistics.median(self.step_times_s[1:] or self.step_times_s or (0.0,))

    def smoothed(self, window_sequences: int) -> tuple[float, ...]:
        """Mean of each step and those before it over about so many sequences; over what there is where that is less."""
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        return tuple(statistics.fmean(self.losses[max(0, end - width) : end]) for end in range(1, self.num_steps + 1))

    def steps_to(self, target_loss: float, window_sequences: int) -> int | None:
        """Steps after which the mean over a whole window is at the target; None where it never was."""
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        for number, loss in enumerate(self.smoothed(window_sequences), start=1):
            if number >= width and loss <= target_loss:
                return number
        return None


@value
class Range:
    """Numbers from ``low`` to ``high``, both of them included; equal ones leave nothing to search."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise InvalidInput(
                "low", self.low, "must be 0 or more, and no more than high", min(max(self.low, 0), self.high)
            )


LEARNING_RATES: Mapping[OptimizerName, Range] = {
    OptimizerName.ADAMW: Range(low=1e-4, high=3e-2),
    OptimizerName.LAMB: Range(low=1e-3, high=1e-1),
    OptimizerName.MADGRAD: Range(low=1e-4, high=1e-1),
}
"""Where a study looks for a learning rate unless told: around what the optimizers' papers tune.

AdamW: 1e-3 of arXiv 1412.6980, a decade down and one and a half up; LAMB: 5e-4 to 1e-2 of arXiv 1904.00962 for large
models, and a decade more for small ones, whose tensors have small norms; MADGRAD: 2.5e-5 to 2.5e-1 of arXiv 2101.11075,
its inner decades.
"""


@value
class OptimizerSpace:
    """What a study may try."""

    optimizers: tuple[OptimizerName, ...] = tuple(OptimizerName)
    learning_rate: Range | None = None
    """On a logarithmic scale; None: what suits each optimizer (``LEARNING_RATES``)."""
    beta1: Range = Range(low=0.8, high=0.95)
    """On a logarithmic scale of what is left to 1."""
    beta2: Range = Range(low=0.8, high=0.999)
    """On such a scale, too."""
    weight_decay: Range = Range(low=0.0, high=0.1)
    """On a linear scale."""
    warmup_steps: tuple[int, ...] = (0, 10, 40)
    """Each of these."""
    global_batch_sizes: tuple[int, ...] = ()
    """Each of these; empty: the workload's."""
    data_parallel_degrees: tuple[int, ...] = ()
    """Each of these; empty: the layout's. Fewer ranks take fewer accelerators."""

    def __post_init__(self) -> None:
        for name in ("optimizers", "warmup_steps"):
            if not getattr(self, name):
                raise InvalidInput(name, [], "must name at least one")
        for name in ("global_batch_sizes", "data_parallel_degrees"):
            for number in getattr(self, name):
                if number < 1:
                    raise InvalidInput(name, number, "must be 1 or more", 1)
        for name in ("beta1", "beta2"):
            if getattr(self, name).high >= 1:
                raise InvalidInput(f"{name}.high", getattr(self, name).high, "must be below 1", 0.999)
        if self.learning_rate is not None and not self.learning_rate.low > 0:
            raise InvalidInput("low", self.learning_rate.low, "must be above 0")

    def learning_rates(self, name: OptimizerName) -> Range:
        """Where to look for that optimizer's."""
        return self.learning_rate or LEARNING_RATES[name]


@value
class OptimizerCandidate:
    """One choice of all that a study searches."""

    optimizer: OptimizerSettings
    global_batch_size: int
    data_parallel_degree: int

    def __str__(self) -> str:
        chosen = self.optimizer
        scale = f"batch {self.global_batch_size}, data-parallel degree {self.data_parallel_degree}"
        return f"{chosen.name}, learning rate {chosen.learning_rate:.3g}, {scale}"


@value
class TargetReached:
    """What it took a candidate to come to the target loss."""

    num_steps: int
    num_samples: int
    """Sequences that it saw."""
    step_time_s: float
    time_s: float
    """Steps times the median of a step's time: without the start, and without the first step's allocations."""
    accelerator_hours: float
    """That time on all of its ranks."""
    cost: float | None = None
    """Of these at the cluster's price; None where it has none."""


@value
class PruneReason:
    """The reason that ended a candidate before its target: another was there, or its loss lay above the others'."""

    time_s: float
    """After that long: the other's time to the target, or the time that it had trained itself."""
    beaten_by: int | None = None
    """Number of the candidate that came to the target sooner and for less."""
    loss: float | None = None
    """Its own."""
    median: float | None = None
    """Of the others' best losses by then."""


@value
class OptimizerTrial:
    """A trial of a study as it is stored."""

    id: str
    study_id: str
    number: int
    """Counts from 0 inside its study."""
    candidate: OptimizerCandidate
    state: TrialState = TrialState.QUEUED
    """Complete: it came to the target, or used up its samples; ``reached`` says which."""
    world_size: int
    """Ranks that it takes."""
    attempts: int = 0
    """How often it was started; above 1 after an interruption."""
    started_at: float | None = None
    finished_at: float | None = None
    curve: LossCurve
    """Of the running or last attempt."""
    reached: TargetReached | None = None
    """None where it did not come to the target."""
    pruned: PruneReason | None = None
    """Why it ended before its target; None where it did not."""
    detail: str = ""
    """The failure that ended it, or what it waits for, in the words of whoever told it; else empty."""
    jobs: tuple[EngineJob, ...] = ()
    """What engines were given for it, to be found again by whoever goes on with it."""

    @property
    @derived
    def accelerator_hours(self) -> float:
        """What its steps took by now, on all of its ranks."""
        return sum(self.curve.step_times_s) * self.world_size / 3600


@value
class StudyBudget:
    """When a study ends."""

    num_trials: Count = 30
    """Most candidates that are tried."""
    max_samples: Count = 20_000
    """Most sequences that one of them sees on its way to the target."""
    accelerator_hours: Positive | None = None
    """Most that all of their steps take together; None: no limit."""


@value
class OptimizerStudyRequest:
    """What a caller asks for, with every name resolved."""

    job: Job
    layout: Layout
    """How the model is trained; candidates differ from it in data-parallel ranks alone."""
    target_loss: Positive
    """Training is done when the mean loss over ``window_sequences`` sequences is there."""
    window_sequences: Count = 64
    """Over how many sequences losses are averaged, whatever the batch."""
    space: OptimizerSpace = field(default_factory=OptimizerSpace)
    budget: StudyBudget = field(default_factory=StudyBudget)
    prunes: bool = True
    """Whether candidates end early that can no longer lie on the front, or whose loss lies above the others'."""
    trial: TrialSettings = field(default_factory=TrialSettings)
    """How long a trial may take, and what clips its gradients; the study says how many steps it runs."""
    seed: CountFromZero = 0
    name: str = ""

    def __post_init__(self) -> None:
        if self.job.cluster.engine == SIMULATED:
            rule = "must run trials: the cost model has no losses"
            raise InvalidInput("cluster", self.job.cluster.name, rule, "local")

    @property
    def global_batch_sizes(self) -> tuple[int, ...]:
        """Those that may be tried."""
        return self.space.global_batch_sizes or (self.job.workload.global_batch_size,)

    @property
    def data_parallel_degrees(self) -> tuple[int, ...]:
        """Those that may be tried."""
        return self.space.data_parallel_degrees or (self.layout.data_parallel_degree,)

    def layout_of(self, data_parallel_degree: int) -> Layout:
        """The layout with so many data-parallel ranks: more shards where it shards, more replicas where it does not."""
        layout = self.layout
        if layout.shard_level == ShardLevel.NONE or layout.data_parallel_shard_degree == 1:
            return replace(layout, data_parallel_replicate_degree=data_parallel_degree)
        shards = max(1, data_parallel_degree // layout.data_parallel_replicate_degree)
        return replace(layout, data_parallel_shard_degree=shards)

    def job_of(self, candidate: OptimizerCandidate) -> Job:
        """What a trial of the candidate runs, on as much of the cluster as it takes."""
        workload = replace(self.job.workload, global_batch_size=candidate.global_batch_size)
        world_size = self.layout_of(candidate.data_parallel_degree).world_size
        return replace(self.job, workload=workload, cluster=_part(self.job.cluster, world_size))


def _part(cluster: Cluster, world_size: int) -> Cluster:
    """So many accelerators of a cluster: whole nodes, or a part of one; the cluster itself where they do not divide."""
    per_node = cluster.accelerators_per_node
    if world_size <= per_node:
        return cluster.resized(num_nodes=1, accelerators_per_node=world_size)
    return cluster.resized(num_nodes=world_size // per_node) if world_size % per_node == 0 else cluster


@value
class StudyProgress:
    """The progress of a study: its trials by now."""

    trials: tuple[OptimizerTrial, ...]
    """By number."""
    refusals: tuple[str, ...] = ()
    """What of the space cannot be tried, and why, as sentences without a full stop."""


@value
class StudyRun(Run):
    """An optimizer study, with its trials as they were when it was read."""

    kind: Literal["study"] = "study"
    request: OptimizerStudyRequest
    progress: StudyProgress | None = None
    """None in a list of studies."""

    @property
    def trials(self) -> Sequence[OptimizerTrial]:
        """Its trials, by number."""
        return () if self.progress is None else self.progress.trials

    @property
    @derived
    def name(self) -> str:
        """For people; need not be unique."""
        return self.request.name

    @property
    @derived
    def front(self) -> tuple[int, ...]:
        """Numbers of the trials that no other beats both in time and in accelerator-hours, the fastest first."""
        return tuple(trial.number for trial in self.best)

    @property
    def best(self) -> Sequence[OptimizerTrial]:
        """The trials of the front, the fastest first."""
        return front(self.trials)


def front(trials: Iterable[OptimizerTrial]) -> Sequence[OptimizerTrial]:
    """Those at the target that no other beats in time without taking more accelerator-hours; the fastest first."""
    reached = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    best = [trial for trial, own in reached if not any(dominates(other, own) for _, other in reached)]
    return sorted(best, key=lambda trial: (trial.reached.time_s if trial.reached else 0.0, trial.number))


def dominates(one: TargetReached, other: TargetReached) -> bool:
    """Whether one is no worse in both, time and accelerator-hours, and better in one."""
    ours, theirs = (one.time_s, one.accelerator_hours), (other.time_s, other.accelerator_hours)
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]
