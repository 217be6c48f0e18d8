"""The groups of one rank of a layout: who else is in them, which link they cross, what that costs a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.routing import width_split
from autotuner.costmodel.step.exchanges import Exchange, exchanges
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.errors import InvalidInput

__all__ = ["RankGroup", "RankGroups", "rank_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """A group of ranks that one rank communicates in.

    Attributes:
        axis: ``tensor``, ``context``, ``expert``, ``pipeline`` or ``data``; the last holds context ranks, too, which
            sum the same gradients.
        letters: As a column is headed: ``tp``.
        ranks: Of the group, in order.
        link: Name of the slowest link that it crosses.
        num_nodes: Nodes on which it lies, or NVLink domains of several nodes.
        sent_bytes: Bytes that pass a rank's link in a step.
        exposed_s: Seconds of a step in which a rank waits for them.
    """

    axis: str
    letters: str
    ranks: tuple[int, ...]
    link: str
    num_nodes: int
    sent_bytes: float
    exposed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Where a rank lies, and its groups of more than one.

    Attributes:
        pipeline_rank: Its stage, or its first of several.
        node: Of the cluster, from 0.
        ranks_per_node: Ranks of each node; those of a node follow one another.
        ranks_per_stage: Ranks of each pipeline rank.
        groups: Innermost first.
    """

    rank: int
    pipeline_rank: int
    node: int
    ranks_per_node: int
    ranks_per_stage: int
    world_size: int
    groups: tuple[RankGroup, ...]


def rank_groups(layout: Layout, job: Job, rank: int) -> RankGroups:
    """The groups of a rank of a legal layout.

    Raises:
        InvalidInput: The layout has no such rank.
    """
    if not 0 <= rank < layout.world_size:
        rule = f"must be one of the layout's ranks, 0 to {layout.world_size - 1}"
        raise InvalidInput("rank", rank, rule, min(max(rank, 0), layout.world_size - 1))
    per_stage = layout.world_size // layout.pipeline_parallel_degree
    return RankGroups(
        rank=rank,
        pipeline_rank=rank // per_stage,
        node=rank // job.cluster.accelerators_per_node,
        ranks_per_node=job.cluster.accelerators_per_node,
        ranks_per_stage=per_stage,
        world_size=layout.world_size,
        groups=tuple(_groups(layout, job, rank, rank // per_stage)),
    )


def _groups(layout: Layout, job: Job, rank: int, pipeline_rank: int) -> Iterator[RankGroup]:
    found = exchanges(layout, job, pipeline_rank)
    tensor, context = layout.tensor_parallel_degree, layout.context_parallel_degree
    data, pipeline = layout.data_parallel_degree, layout.pipeline_parallel_degree
    inner = int(width_split(LayoutColumns.from_layouts([layout]), job)[0])
    joins = layout.shard_level != ShardLevel.NONE or data > 1 or context > 1
    for axis, letters, size, stride, exchange in (
        ("tensor", "tp", tensor, 1, found.tensor),
        ("context", "cp", context, tensor, found.context),
        ("expert", "ep", layout.expert_parallel_degree, inner, found.expert),
        ("pipeline", "pp", pipeline, tensor * context * data, found.pipeline),
        ("data", "dp" if context == 1 else "dp cp", data * context * joins, tensor, found.data),
    ):
        if size > 1:
            yield _group(axis, letters, _members(rank, size, stride), job.cluster, exchange)


def _members(rank: int, size: int, stride: int) -> tuple[int, ...]:
    """So many ranks that lie a stride apart, the rank among them."""
    first = rank - rank // stride % size * stride
    return tuple(range(first, first + size * stride, stride))


def _group(axis: str, letters: str, ranks: tuple[int, ...], cluster: Cluster, exchange: Exchange) -> RankGroup:
    domains = {rank // cluster.accelerators_per_domain for rank in ranks}
    link = cluster.intra_node_link if len(domains) == 1 else cluster.inter_node_link
    return RankGroup(
        axis=axis,
        letters=letters,
        ranks=ranks,
        link=link.name,
        num_nodes=len(domains),
        sent_bytes=exchange.sent_bytes,
        exposed_s=exchange.exposed_s,
    )
