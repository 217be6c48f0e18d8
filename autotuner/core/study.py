"""Optimizer study: a search of an optimizer's own parameters by the loss that they reach.

The model has not seen a batch before the loss of the batch is computed. A training loss is therefore also a validation
loss, except for the noise of a batch. To compare batch sizes, losses are averaged over about the same number of
sequences.
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
    """The loss and the duration of each step of a training.

    Example:
        >>> curve = LossCurve(losses=(4.0, 3.0, 2.0), global_batch_size=8)
        >>> curve.steps_to(2.5, window_sequences=16)
        3
    """

    losses: tuple[float, ...] = ()
    """Loss of each step, as the mean over the batch before the step's update."""
    step_times_s: tuple[float, ...] = ()
    """Seconds of each step."""
    global_batch_size: int
    """Number of sequences of a step."""

    def with_step(self, loss: float, step_time_s: float) -> LossCurve:
        """Return the curve with one more step at its end."""
        losses, times = (*self.losses, loss), (*self.step_times_s, step_time_s)
        return LossCurve(losses=losses, step_times_s=times, global_batch_size=self.global_batch_size)

    @property
    @derived
    def num_steps(self) -> int:
        """The number of training steps so far."""
        return len(self.losses)

    @property
    def num_samples(self) -> int:
        """The number of sequences that were trained on so far."""
        return self.num_steps * self.global_batch_size

    @property
    @derived
    def step_time_s(self) -> float:
        """The median seconds of a step, without the first step, which also allocates and compiles; 0 without a step."""
        return statistics.median(self.step_times_s[1:] or self.step_times_s or (0.0,))

    def smoothed(self, window_sequences: int) -> tuple[float, ...]:
        """Return for each step the mean loss over a window that ends with this step.

        Args:
            window_sequences: Size of the window in sequences. It is rounded up to whole steps.
        """
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        return tuple(statistics.fmean(self.losses[max(0, end - width) : end]) for end in range(1, self.num_steps + 1))

    def steps_to(self, target_loss: float, window_sequences: int) -> int | None:
        """Return the number of steps after which the smoothed loss first reaches the target; None if it never does.

        Args:
            target_loss: The target.
            window_sequences: Size of the window of the mean, in sequences. Only whole windows count.
        """
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        for number, loss in enumerate(self.smoothed(window_sequences), start=1):
            if number >= width and loss <= target_loss:
                return number
        return None


@value
class Range:
    """A range of numbers from ``low`` to ``high``, both included. If both are equal, there is nothing to search."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            nearest = min(max(self.low, 0), self.high) if self.high >= 0 else None
            raise InvalidInput(
                "low", self.low, f"must be from 0 to {self.high:g}, the upper end of the range (high)", nearest
            )


LEARNING_RATES: Mapping[OptimizerName, Range] = {
    OptimizerName.ADAMW: Range(low=1e-4, high=3e-2),
    OptimizerName.LAMB: Range(low=1e-3, high=1e-1),
    OptimizerName.MADGRAD: Range(low=1e-4, high=1e-1),
}
"""Ranges in which a study looks for a learning rate by default, around the values that the optimizers' papers tune.

AdamW: 1e-3 of arXiv 1412.6980, from a tenth of it to thirty times it; LAMB: 5e-4 to 1e-2 of arXiv 1904.00962 for large
models, and a decade more for small ones, whose tensors have small norms; MADGRAD: the middle of 2.5e-5 to 2.5e-1 of
arXiv 2101.11075.
"""


@value
class OptimizerSpace:
    """The values that an optimizer study may try for the optimizer, its settings, the batch size and the ranks.

    An optimizer study looks for the values with which a training reaches a target loss fastest.
    """

    optimizers: tuple[OptimizerName, ...] = tuple(OptimizerName)
    learning_rate: Range | None = None
    """Range of the learning rate on a logarithmic scale; None: the default range of each optimizer
    (``LEARNING_RATES``)."""
    beta1: Range = Range(low=0.8, high=0.95)
    """Range of the first moment's decay, on a logarithmic scale of its distance from 1."""
    beta2: Range = Range(low=0.8, high=0.999)
    """Range of the second moment's decay, on a logarithmic scale of its distance from 1."""
    weight_decay: Range = Range(low=0.0, high=0.1)
    """Range of the weight decay on a linear scale."""
    warmup_steps: tuple[int, ...] = (0, 10, 40)
    """Numbers of warm-up steps to try."""
    global_batch_sizes: tuple[int, ...] = ()
    """Global batch sizes to try; empty: only the workload's."""
    data_parallel_degrees: tuple[int, ...] = ()
    """Data-parallel degrees to try; empty: only the layout's. Fewer ranks use fewer accelerators."""

    def __post_init__(self) -> None:
        for name in ("optimizers", "warmup_steps"):
            if not getattr(self, name):
                raise InvalidInput(name, [], "must name at least one value")
        for name in ("global_batch_sizes", "data_parallel_degrees"):
            for number in getattr(self, name):
                if number < 1:
                    raise InvalidInput(name, number, "must be 1 or more", 1)
        for name in ("beta1", "beta2"):
            if getattr(self, name).high >= 1:
                raise InvalidInput(f"{name}.high", getattr(self, name).high, "must be below 1", 0.999)
        if self.learning_rate is not None and not self.learning_rate.low > 0:
            raise InvalidInput("learning_rate.low", self.learning_rate.low, "must be above 0")

    def learning_rates(self, name: OptimizerName) -> Range:
        """Return the range of learning rates that an optimizer study may try for this optimizer."""
        return self.learning_rate or LEARNING_RATES[name]


@value
class OptimizerCandidate:
    """One combination of optimizer settings, batch size and data-parallel degree that an optimizer study tries."""

    optimizer: OptimizerSettings
    global_batch_size: int
    data_parallel_degree: int

    def __str__(self) -> str:
        chosen = self.optimizer
        scale = f"batch {self.global_batch_size}, data-parallel degree {self.data_parallel_degree}"
        return f"{chosen.name}, learning rate {chosen.learning_rate:.3g}, {scale}"


@value
class TargetReached:
    """The steps, time and cost that a candidate needed to reach the target loss."""

    num_steps: int
    num_samples: int
    """Number of sequences that the candidate was trained on until it reached the target."""
    step_time_s: float
    time_s: float
    """Number of steps times the median step time, without the start-up and the slow first step."""
    accelerator_hours: float
    """Accelerator-hours of ``time_s`` on all ranks of the candidate."""
    cost: float | None = None
    """Price of ``accelerator_hours`` at the cluster's price; None if the cluster has no price."""


@value
class PruneReason:
    """The reason why a study ended a candidate early: another one is better, or its loss was above the others' loss."""

    time_s: float
    """Training time after which the candidate was ended: the other candidate's time to the target, or its own time so
    far."""
    beaten_by: int | None = None
    """Number of the candidate that reached the target earlier and at a lower cost."""
    loss: float | None = None
    """Loss of the ended candidate."""
    median: float | None = None
    """Median of the other candidates' best losses at that time."""


@value
class OptimizerTrial:
    """One trial of an optimizer study, as it is stored: the training of one candidate towards the target loss."""

    id: str
    study_id: str
    number: int
    """Number of the trial inside its study, from 0."""
    candidate: OptimizerCandidate
    state: TrialState = TrialState.QUEUED
    """State of the trial. A complete trial reached the target or used all of its sequences; ``reached`` says which."""
    world_size: int
    """Number of ranks of the trial."""
    attempts: int = 0
    """Number of times the trial was started; above 1 after an interruption."""
    started_at: float | None = None
    finished_at: float | None = None
    curve: LossCurve
    """Losses and step times of the running or last attempt."""
    reached: TargetReached | None = None
    """Cost of reaching the target loss; None if the trial did not reach it."""
    pruned: PruneReason | None = None
    """Reason why the trial was ended before its target; None if it was not."""
    detail: str = ""
    """Failure that ended the trial, or the reason why it waits, in the words of its source; otherwise empty."""
    jobs: tuple[EngineJob, ...] = ()
    """Jobs that were submitted to engines for the trial, so that a worker that resumes it finds them."""

    @property
    @derived
    def accelerator_hours(self) -> float:
        """The accelerator-hours that all ranks of the trial used so far."""
        return sum(self.curve.step_times_s) * self.world_size / 3600


@value
class StudyBudget:
    """The limits of an optimizer study: number of candidates, sequences per candidate, and accelerator-hours."""

    num_trials: Count = 30
    """Most candidates that the study tries."""
    max_samples: Count = 20_000
    """Most sequences that one candidate is trained on to reach the target."""
    accelerator_hours: Positive | None = None
    """Most accelerator-hours of all steps together; None: no limit."""


@value
class OptimizerStudyRequest:
    """A complete request for an optimizer study, in which every name was replaced by the object that it names."""

    job: Job
    layout: Layout
    """Layout that the model is trained with. Candidates may change only its number of data-parallel ranks."""
    target_loss: Positive
    """Target loss, as the mean over ``window_sequences`` sequences. A candidate that reaches it is done."""
    window_sequences: Count = 64
    """Number of sequences over which losses are averaged, for every batch size."""
    space: OptimizerSpace = field(default_factory=OptimizerSpace)
    budget: StudyBudget = field(default_factory=StudyBudget)
    prunes: bool = True
    """End a candidate early if it can no longer be on the Pareto front, or if its loss is above the others'."""
    trial: TrialSettings = field(default_factory=TrialSettings)
    """Timeout of a trial, and the norm that clips its gradients. The study decides the number of steps."""
    seed: CountFromZero = 0
    name: str = ""

    def __post_init__(self) -> None:
        if self.job.cluster.engine == SIMULATED:
            rule = "must be a cluster that runs trials, such as local, because a simulation has no losses"
            raise InvalidInput("cluster", self.job.cluster.name, rule)

    @property
    def global_batch_sizes(self) -> tuple[int, ...]:
        """The global batch sizes that the study may try; by default only the batch size of the job."""
        return self.space.global_batch_sizes or (self.job.workload.global_batch_size,)

    @property
    def data_parallel_degrees(self) -> tuple[int, ...]:
        """The data-parallel degrees that the study may try; by default only the degree of the layout."""
        return self.space.data_parallel_degrees or (self.layout.data_parallel_degree,)

    def layout_of(self, data_parallel_degree: int) -> Layout:
        """Return the study's layout with this number of data-parallel ranks.

        If the layout shards, the number of shards changes, otherwise the number of replicas.
        """
        layout = self.layout
        if layout.shard_level == ShardLevel.NONE or layout.data_parallel_shard_degree == 1:
            return replace(layout, data_parallel_replicate_degree=data_parallel_degree)
        shards = max(1, data_parallel_degree // layout.data_parallel_replicate_degree)
        return replace(layout, data_parallel_shard_degree=shards)

    def job_of(self, candidate: OptimizerCandidate) -> Job:
        """Return the job of a candidate's trial, with the candidate's batch size and number of accelerators."""
        workload = replace(self.job.workload, global_batch_size=candidate.global_batch_size)
        world_size = self.layout_of(candidate.data_parallel_degree).world_size
        return replace(self.job, workload=workload, cluster=_part(self.job.cluster, world_size))


def _part(cluster: Cluster, world_size: int) -> Cluster:
    """Return a part of a cluster with ``world_size`` accelerators.

    Return the whole cluster if no number of whole nodes has so many accelerators.
    """
    per_node = cluster.accelerators_per_node
    if world_size <= per_node:
        return cluster.resized(num_nodes=1, accelerators_per_node=world_size)
    return cluster.resized(num_nodes=world_size // per_node) if world_size % per_node == 0 else cluster


@value
class StudyProgress:
    """The trials of a study so far, and the parts of its search space that cannot be tried."""

    trials: tuple[OptimizerTrial, ...]
    """Trials of the study by number."""
    refusals: tuple[str, ...] = ()
    """Parts of the search space that cannot be tried, each with its reason, as sentences without a full stop."""


@value
class StudyRun(Run):
    """The durable run (background work that survives restarts) of an optimizer study.

    Its trials are those that the study had when the run was read.
    """

    kind: Literal["study"] = "study"
    request: OptimizerStudyRequest
    progress: StudyProgress | None = None
    """Trials of the study so far; None in a list of studies."""

    @property
    def trials(self) -> Sequence[OptimizerTrial]:
        """The trials of the study in the order of their numbers; empty if the study is an item of a list of studies."""
        return () if self.progress is None else self.progress.trials

    @property
    @derived
    def name(self) -> str:
        """The name of the study for people. It need not be unique."""
        return self.request.name

    @property
    @derived
    def front(self) -> tuple[int, ...]:
        """The numbers of the trials on the Pareto front of time and accelerator-hours, the fastest first."""
        return tuple(trial.number for trial in self.best)

    @property
    def best(self) -> Sequence[OptimizerTrial]:
        """The trials on the Pareto front of time and accelerator-hours, the fastest first."""
        return front(self.trials)


def front(trials: Iterable[OptimizerTrial]) -> Sequence[OptimizerTrial]:
    """Return the Pareto front of time and accelerator-hours of trials that reached the target, the fastest first."""
    reached = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    best = [trial for trial, own in reached if not any(dominates(other, own) for _, other in reached)]
    return sorted(best, key=lambda trial: (trial.reached.time_s if trial.reached else 0.0, trial.number))


def dominates(one: TargetReached, other: TargetReached) -> bool:
    """Return True if one result needs less time or fewer accelerator-hours than the other, and not more of either."""
    ours, theirs = (one.time_s, one.accelerator_hours), (other.time_s, other.accelerator_hours)
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]
