"""Which parts of a target's step a small trial runs just so, and which the cost model has to add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotuner.core.choices import ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_sizes, stages_of_rank
from autotuner.core.trial import ScaledTrial

OF_A_RANK = ("matrix_s", "attention_s", "pointwise_s", "host_s", "recompute_s", "offload_s")
"""Parts that a rank takes by itself."""

_Group = tuple[int, int]
"""How many ranks, and how far they lie apart."""


def measured_parts(job: Job, layout: Layout, cluster: Cluster, trial: ScaledTrial) -> tuple[str, ...]:
    """Fields of ``StepTime``: the same shapes and counts, in groups of as many ranks over the same kind of link.

    None where the trial's ranks hold fewer layers: then each is measured for some of them.
    """
    is_whole = _most_layers(layout, job.model.num_layers) == _most_layers(trial.layout, trial.num_layers)
    return tuple(_parts(job, layout, cluster, trial)) if is_whole else ()


def _most_layers(x: Layout, num_layers: int) -> int:
    """Layers of the rank that holds most."""
    sizes = stage_sizes(num_layers, x.num_stages, x.first_stage_less_layers, x.last_stage_less_layers)
    ranks = range(x.pipeline_parallel_degree)
    return max(sum(sizes[stage] for stage in stages_of_rank(x, rank)) for rank in ranks)


def _parts(job: Job, layout: Layout, cluster: Cluster, trial: ScaledTrial) -> Iterator[str]:
    small, room = trial.layout, trial.job(job, cluster).cluster
    yield from OF_A_RANK
    few = _groups(small, job)
    for part, groups in _groups(layout, job).items():
        alike = (_is_alike(job.cluster, ours, room, theirs) for ours, theirs in zip(groups, few[part], strict=True))
        if any(num_ranks > 1 for num_ranks, _ in groups) and all(alike):
            yield part
    if small.pipeline_parallel_degree == layout.pipeline_parallel_degree > 1:
        yield "bubble_s"
    if _num_shards(small) == _num_shards(layout):
        yield "optimizer_s"


def _num_shards(layout: Layout) -> int:
    """Ranks that share what the optimizer updates."""
    return 1 if layout.shard_level == ShardLevel.NONE else layout.data_parallel_shard_degree


def _groups(x: Layout, job: Job) -> Mapping[str, tuple[_Group, ...]]:
    """The groups whose communication each part of a step is."""
    tensor, context, shard = x.tensor_parallel_degree, x.context_parallel_degree, x.data_parallel_shard_degree
    inner = tensor * context
    return {
        "tensor_communication_s": ((tensor, 1),),
        "context_communication_s": ((context, tensor),),
        "expert_communication_s": ((x.expert_parallel_degree, tensor if job.stack.splits_experts else 1),),
        "pipeline_communication_s": ((min(2, x.pipeline_parallel_degree), inner * x.data_parallel_degree),),
        "data_communication_s": ((shard, inner), (x.data_parallel_replicate_degree, inner * shard)),
    }


def _is_alike(cluster: Cluster, ours: _Group, room: Cluster, theirs: _Group) -> bool:
    """Whether both groups have as many ranks, over a link of the same name."""
    if ours[0] != theirs[0]:
        return False
    return ours[0] == 1 or cluster.link_for(*ours).name == room.link_for(*theirs).name
