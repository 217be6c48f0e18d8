"""Proxy trial: a trial on few accelerators that is a proxy for a layout of a job on many.

A proxy keeps the computation of a rank and its communication in tensor, context, expert and pipeline groups: the
degrees of these groups, the size and number of a replica's micro-batches, the layers per stage, and every other option.
It reduces first the replicas, then the pipeline, and then the number of layers, if a rank has too little memory for the
states that fewer ranks share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from autotuner.core.choices import ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.degrees import DEGREE_RULES
from autotuner.core.rules.legality import illegal
from autotuner.core.rules.rule import Reason
from autotuner.core.stages import layers_per_stage, next_alike, stage_sizes, stages_of_rank
from autotuner.core.trial import ProxyTrial
from autotuner.core.value import divisors
from autotuner.search.space.moves import settle, settle_groups

OF_A_RANK = ("matrix_s", "attention_s", "pointwise_s", "host_s", "recompute_s", "offload_s")
"""Parts of a step that do not depend on other ranks."""

_SHRINKING = ("pipeline_parallel_degree", "data_parallel_shard_degree", "data_parallel_replicate_degree")
"""Degrees that a proxy reduces, in the order of ``split``."""

_Group = tuple[int, int]
"""A group of ranks: the number of ranks, and the distance between their numbers."""


def measured_parts(job: Job, layout: Layout, cluster: Cluster, trial: ProxyTrial) -> tuple[str, ...]:
    """Return the fields of ``StepTime`` that take equally long in a proxy trial and in the full-size layout.

    A proxy trial runs a smaller layout in place of the full-size one. For these fields, shapes and counts are equal,
    and each group has as many ranks over the same kind of link. The result is empty if a rank of the proxy trial holds
    fewer layers, because the trial then measures each part for only some of the layers.

    Args:
        job: The full-size job.
        layout: The full-size layout.
        cluster: Cluster of the trial.
        trial: The proxy trial.
    """
    is_whole = _most_layers(layout, job.model.num_layers) == _most_layers(trial.layout, trial.num_layers)
    return tuple(_parts(job, layout, cluster, trial)) if is_whole else ()


def _most_layers(x: Layout, num_layers: int) -> int:
    """Return the number of layers on the rank with most layers."""
    sizes = stage_sizes(num_layers, x.num_stages, x.first_stage_less_layers, x.last_stage_less_layers)
    ranks = range(x.pipeline_parallel_degree)
    return max(sum(sizes[stage] for stage in stages_of_rank(x, rank)) for rank in ranks)


def _parts(job: Job, layout: Layout, cluster: Cluster, trial: ProxyTrial) -> Iterator[str]:
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
    """Return the number of ranks that share the optimizer's states."""
    return 1 if layout.shard_level == ShardLevel.NONE else layout.data_parallel_shard_degree


def _groups(x: Layout, job: Job) -> Mapping[str, tuple[_Group, ...]]:
    """Return the groups of ranks whose communication each part of a step consists of."""
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
    """Return True if both groups have the same number of ranks and use a link of the same name."""
    if ours[0] != theirs[0]:
        return False
    return ours[0] == 1 or cluster.link_for(*ours).name == room.link_for(*theirs).name


def proxy_trial(
    job: Job, layout: Layout, cluster: Cluster, *, most_layers_per_stage: int | None = None, whole_model: bool = False
) -> ProxyTrial | Reason:
    """Return the proxy trial that runs on a smaller cluster in place of a layout, or the reason why there is none.

    The function considers only trials whose layouts keep the rules about degrees. It prefers trials in which each group
    of several ranks still has several ranks, then trials with the most pipeline ranks, then with the most shards, then
    with the most replicas. It does not check the memory or the rules about other options.

    Args:
        job: The full-size job.
        layout: A legal layout of that job.
        cluster: Cluster on which trials run: the same accelerators, but fewer.
        most_layers_per_stage: Maximum number of layers per stage of the trial, so that a stage fits in memory; None: as
            many as in the full-size job.
        whole_model: Keep all layers and pipeline ranks, for a trainer that always trains the whole model.
    """
    if reason := _too_large(job, layout, cluster):
        return reason
    depth = min(layers_per_stage(layout, job.model.num_layers), most_layers_per_stage or job.model.num_layers)
    room = cluster.num_nodes, cluster.accelerators_per_node
    pipeline, shard, replicate = (getattr(layout, degree) for degree in _SHRINKING)
    for split in _splits(*_kept(job, layout), (pipeline, shard, replicate), *room, whole_model):
        trial = _with_degrees(job, layout, cluster, split, depth)
        if not illegal(trial.layout, trial.job(job, cluster), DEGREE_RULES):
            return replace(trial, measured_parts=measured_parts(job, layout, cluster, trial))
    return _reason(
        "pipeline_parallel_degree",
        f"no proxy of the layout with fewer pipeline ranks and replicas fits on {cluster.world_size} accelerators",
    )


def fewer_layers(job: Job, layout: Layout, layers: int) -> int | None:
    """Return about half of a number of layers per stage, for a smaller proxy trial; None if no smaller number works.

    The new number keeps the pattern of recomputed and sparse layers, so that a stage still ends with the same kind of
    layer. A stage needs at least one layer of each kind. If the first or the last stage has fewer layers than the
    others, at least one layer must remain there.

    Args:
        job: The full-size job.
        layout: A layout of that job.
        layers: Present number of layers per stage.
    """
    interval = job.model.experts.sparse_layer_interval if job.model.experts else 1
    period = math.lcm(layout.recompute_every, interval)
    fewest = max(layout.first_stage_less_layers + 1, layout.last_stage_less_layers + 1, period)
    fewer = next_alike(max(layers // 2, fewest), layers, period)
    return fewer if fewer < layers else None


# ---------------------------------------------------------------- degrees
def _too_large(job: Job, layout: Layout, cluster: Cluster) -> Reason | None:
    """Return the reason why the kept groups do not fit on the cluster; None if they fit."""
    tensor, per_node = layout.tensor_parallel_degree, cluster.accelerators_per_domain
    if per_node % tensor:
        return _reason(
            "tensor_parallel_degree", f"{tensor} tensor ranks do not divide the {per_node} accelerators of a node"
        )
    inner, expert_shards = _kept(job, layout)
    if inner * expert_shards <= cluster.world_size:
        return None
    groups = {"tensor": tensor, "context": layout.context_parallel_degree, "expert": layout.expert_parallel_degree}
    named = " and ".join(f"{degree} {name}" for name, degree in groups.items() if degree > 1)
    field = "expert_parallel_degree" if expert_shards > 1 else "context_parallel_degree"
    return _reason(
        field,
        f"{named} ranks need {inner * expert_shards} accelerators, but the smaller cluster has {cluster.world_size}",
    )


def _reason(field: str, why: str) -> Reason:
    return Reason(rule="trial-on-fewer-ranks", field=field, message=f"no trial fits on the smaller cluster: {why}")


def _kept(job: Job, layout: Layout) -> tuple[int, int]:
    """Return the number of tensor and context ranks, and the fewest shards that contain one expert group."""
    inner = layout.tensor_parallel_degree * layout.context_parallel_degree
    lent = layout.context_parallel_degree if job.stack.splits_experts else inner
    return inner, layout.expert_parallel_degree // math.gcd(layout.expert_parallel_degree, lent)


@lru_cache(maxsize=1 << 12)
def _splits(
    inner: int, expert_shards: int, whole: tuple[int, int, int], num_nodes: int, per_node: int, whole_model: bool
) -> tuple[tuple[int, int, int], ...]:
    """Return the pipeline, shard and replicate degrees that fit on the cluster, the best first."""
    pipeline, shard, replicate = whole
    pipelines = (pipeline,) if whole_model else sorted({*divisors(pipeline), min(2, pipeline)})
    found = [
        (p, s, r)
        for p in pipelines
        for s in divisors(shard)
        for r in divisors(replicate)
        if s % expert_shards == 0 and _has_room(inner * p * s * r, num_nodes, per_node)
    ]
    return tuple(sorted(found, key=lambda split: (_groups_left(split, whole), split), reverse=True))


def _has_room(num_ranks: int, num_nodes: int, per_node: int) -> bool:
    return num_ranks <= per_node or (num_ranks % per_node == 0 and num_ranks <= num_nodes * per_node)


def _groups_left(split: tuple[int, int, int], whole: tuple[int, int, int]) -> tuple[bool, ...]:
    """Return which groups still have several ranks, or never had: pipeline, shards, replicas.

    Earlier ones count for more.
    """
    return tuple(few > 1 or many == 1 for few, many in zip(split, whole, strict=True))


def _with_degrees(job: Job, layout: Layout, cluster: Cluster, split: tuple[int, int, int], depth: int) -> ProxyTrial:
    """Return the proxy trial with these degrees, even if it breaks rules."""
    degrees = dict(zip(_SHRINKING, split, strict=True))
    small = settle_groups(replace(layout, **degrees))  # type: ignore[arg-type]  # each is a number
    num_layers = _num_layers(job.model, layout, small.pipeline_parallel_degree, depth)
    trial = ProxyTrial(
        layout=small,
        num_layers=num_layers,
        num_dense_layers=_num_dense_layers(job.model, small, num_layers),
        global_batch_size=job.workload.num_micro_batches(layout) * small.data_parallel_degree * small.micro_batch_size,
    )
    return replace(trial, layout=settle(small, trial.job(job, cluster)))


# ---------------------------------------------------------------- layers
def _num_layers(model: TransformerSpec, layout: Layout, pipeline: int, depth: int) -> int:
    """Return the number of layers of the proxy's model.

    It has as many per stage as the layout, and as many of the different stages as the pipeline allows.
    """
    less = layout.first_stage_less_layers + layout.last_stage_less_layers
    odd, stages = (model.num_layers + less) % layout.num_stages, pipeline * layout.virtual_stages_per_rank
    if pipeline == layout.pipeline_parallel_degree:
        return stages * depth + odd - less
    if pipeline == 1:
        return stages * depth + min(odd, 1)  # layers of the rank with most layers
    return stages * depth + min(odd, stages - 1) - less


def _num_dense_layers(model: TransformerSpec, small: Layout, num_layers: int) -> int:
    """Return the number of leading layers without experts in the proxy's model.

    It is all of them if the first of several stages holds more, otherwise their share.
    """
    if model.experts is None:
        return 0
    dense = model.experts.num_dense_layers
    first_stage = num_layers // small.num_stages
    if num_layers == model.num_layers or (small.pipeline_parallel_degree > 1 and dense < first_stage):
        return dense
    return dense * num_layers // model.num_layers
