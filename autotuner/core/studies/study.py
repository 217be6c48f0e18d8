"""An optimizer study: what is asked, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from autotuner.core import check
from autotuner.core.jobs.cluster import SIMULATED, Cluster
from autotuner.core.jobs.job import Job
from autotuner.core.layouts.choice import ShardLevel
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.trial_spec import TrialSettings
from autotuner.core.studies.space import Candidate, OptimizerSpace
from autotuner.errors import InvalidInput

__all__ = ["OptimizerStudy", "OptimizerStudyRequest", "StudyBudget", "StudyState"]


class StudyState(StrEnum):
    """Where a study stands."""

    QUEUED = "queued"  # no worker has begun with it
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """No further change will come."""
        return self not in (StudyState.QUEUED, StudyState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyBudget:
    """When a study ends.

    Attributes:
        num_trials: Most candidates that are tried.
        max_samples: Most sequences that one of them sees on its way to the target.
        accelerator_hours: Most that all of their steps take together; None: no limit.
    """

    num_trials: int = 30
    max_samples: int = 20_000
    accelerator_hours: float | None = None

    def __post_init__(self) -> None:
        check.positive(self, "num_trials", "max_samples")
        if self.accelerator_hours is not None:
            check.positive(self, "accelerator_hours")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyRequest:
    """What a caller asks for, with every name resolved.

    Attributes:
        layout: How the model is trained; candidates differ from it in data-parallel ranks alone.
        target_loss: Training is done when the mean loss over ``window_sequences`` sequences is there.
        window_sequences: Over how many sequences losses are averaged, whatever the batch.
        prunes: Whether candidates end early that can no longer lie on the front, or whose loss lies above the others'.
        trial: How long a trial may take, and what clips its gradients; the study says how many steps it runs.
    """

    job: Job
    layout: Layout
    target_loss: float
    window_sequences: int = 64
    space: OptimizerSpace = field(default_factory=OptimizerSpace)
    budget: StudyBudget = field(default_factory=StudyBudget)
    prunes: bool = True
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        check.positive(self, "target_loss", "window_sequences")
        check.non_negative(self, "seed")
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

    def job_of(self, candidate: Candidate) -> Job:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudy:
    """A study as it is stored.

    Attributes:
        detail: How it ended, as a sentence without a full stop; empty before.
        cancel_requested: Its end was asked for; whoever runs it ends its trial first.
        owner: The worker that runs it; None where none does.
        lease_until: Epoch seconds until which the owner means to keep it, by its own clock.
        renewals: How often a worker has said that it works on it, so that others see whether one still does.
        lease_s: For how long the owner may be silent before another takes over.
        created_by: Name of the caller who asked for it; empty where the service asks nobody.
    """

    id: str
    request: OptimizerStudyRequest
    state: StudyState
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    detail: str = ""
    cancel_requested: bool = False
    owner: str | None = None
    lease_until: float | None = None
    renewals: int = 0
    lease_s: float | None = None
    created_by: str = ""
