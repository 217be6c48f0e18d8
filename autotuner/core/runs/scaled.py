"""ScaledTrial: a small run that stands for a layout of a larger job, on the few accelerators that there are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotuner.core import check
from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.job import Job
from autotuner.core.jobs.model import TransformerSpec
from autotuner.core.layouts.layout import Layout

__all__ = ["ScaledTrial", "part_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTrial:
    """A small run that stands for a layout of a larger job; ``search.scaling`` says how it is chosen.

    Attributes:
        layout: What runs.
        num_layers: Layers of the model that runs.
        num_dense_layers: Leading ones without experts among these, in a sparse model.
        global_batch_size: Sequences per step: a replica runs as many micro-batches as in the target.
        measured_parts: Parts of a step (fields of ``StepTime``) that it runs as the target does: the same shapes and
            counts, in groups of as many ranks over the same kind of link. The others come from the cost model.
    """

    layout: Layout
    num_layers: int
    num_dense_layers: int = 0
    global_batch_size: int
    measured_parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.positive(self, "num_layers", "global_batch_size")
        check.non_negative(self, "num_dense_layers")

    @property
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
