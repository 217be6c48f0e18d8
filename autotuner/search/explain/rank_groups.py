"""The groups of one rank of a layout: who else is in them, which link they cross, what that costs a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from autotuner.core.choices import RankOrder, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import Place, node_of, place_of, rank_at
from autotuner.costmodel.details import exchanges
from autotuner.costmodel.micro_batch import width_split
from autotuner.search.explain.routes import routes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """A group of ranks that one rank communicates in.

    Attributes:
        axis: ``tensor``, ``context``, ``expert``, ``pipeline`` or ``data``; the last holds context ranks, too, which
            sum the same gradients.
        letters: As a column is headed: ``tp``.
        ranks: Of the group, in order.
        link: Name of the slowest link that it crosses; on a described network of the one that limits it.
        num_nodes: Nodes on which it lies, or NVLink domains of several nodes.
        sent_bytes: Bytes that pass a rank's link in a step.
        exposed_s: Seconds of a step in which a rank waits for them.
        slow_links: What ails links between two ends that ranks of this very group lie at; of a pipeline, stages that
            follow one another.
    """

    axis: str
    letters: str
    ranks: tuple[int, ...]
    link: str
    num_nodes: int
    sent_bytes: float
    exposed_s: float
    slow_links: tuple[LinkHealth, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """Where a rank lies, and its groups of more than one.

    Attributes:
        pipeline_rank: Its stage, or its first of several.
        node: Of the cluster, from 0.
        ranks_per_node: Ranks of each node.
        ranks_per_stage: Ranks of each pipeline rank.
        groups: Innermost first.
        stages_in_order: Stages follow one another in the order of ranks, each of as many ranks in a row.
        is_dealt: Ranks are dealt to nodes in turn; else those of a node follow one another.
    """

    rank: int
    pipeline_rank: int
    node: int
    ranks_per_node: int
    ranks_per_stage: int
    world_size: int
    groups: tuple[RankGroup, ...]
    stages_in_order: bool = True
    is_dealt: bool = False

    @property
    def num_nodes(self) -> int:
        """Nodes of the job, the last of which may be filled in part."""
        return -(-self.world_size // self.ranks_per_node)

    def ranks_on(self, node: int) -> tuple[int, ...]:
        """The ranks of a node, in the order of its accelerators."""
        if self.is_dealt:
            return tuple(range(node, self.world_size, self.num_nodes))
        first = node * self.ranks_per_node
        return tuple(range(first, min(first + self.ranks_per_node, self.world_size)))

    def node_of(self, rank: int) -> int:
        """The node that a rank lies on."""
        return rank % self.num_nodes if self.is_dealt else rank // self.ranks_per_node


def rank_groups(layout: Layout, job: Job, rank: int) -> RankGroups:
    """The groups of a rank of a legal layout.

    Raises:
        InvalidInput: The layout has no such rank.
    """
    if not 0 <= rank < layout.world_size:
        rule = f"must be one of the layout's ranks, 0 to {layout.world_size - 1}"
        raise InvalidInput("rank", rank, rule, min(max(rank, 0), layout.world_size - 1))
    place, is_dealt = place_of(layout, rank), layout.rank_placement == RankPlacement.CYCLIC
    return RankGroups(
        rank=rank,
        pipeline_rank=place.stage,
        node=node_of(layout, job.cluster, rank),
        ranks_per_node=job.cluster.accelerators_per_node,
        ranks_per_stage=layout.world_size // layout.pipeline_parallel_degree,
        world_size=layout.world_size,
        groups=tuple(_groups(layout, job, rank, place)),
        stages_in_order=not is_dealt and layout.rank_order == RankOrder.STAGES_OUTERMOST and not layout.stage_rotation,
        is_dealt=is_dealt,
    )


def _groups(layout: Layout, job: Job, rank: int, place: Place) -> Iterator[RankGroup]:
    found = exchanges(layout, job, place.stage)
    tensor, context = layout.tensor_parallel_degree, layout.context_parallel_degree
    inner = int(width_split(LayoutColumns.from_layouts([layout]), job)[0])
    limiting = _limiting_links(layout, job)
    stages = [place._replace(stage=stage) for stage in range(layout.pipeline_parallel_degree)]
    for axis, letters, ranks, exchange in (
        ("tensor", "tp", _members(rank, tensor, 1), found.tensor),
        ("context", "cp", _members(rank, context, tensor), found.context),
        ("expert", "ep", _members(rank, layout.expert_parallel_degree, inner), found.expert),
        ("pipeline", "pp", tuple(rank_at(layout, one) for one in stages), found.pipeline),
        ("data", "dp" if context == 1 else "dp cp", _data_ranks(layout, place), found.data),
    ):
        if len(ranks) > 1:
            group = _group(axis, letters, ranks, layout, job.cluster)
            yield replace(
                group,
                link=limiting.get(axis, group.link),
                sent_bytes=exchange.sent_bytes,
                exposed_s=exchange.exposed_s,
            )


def _limiting_links(layout: Layout, job: Job) -> dict[str, str]:
    """By axis, on a described network; of data-parallel ranks those of the slower of both axes."""
    found = sorted(routes(layout, job), key=lambda route: -route.bytes_per_s)
    return {("data" if route.axis in ("shard", "replicate") else route.axis): route.limiting_link for route in found}


def _data_ranks(layout: Layout, place: Place) -> tuple[int, ...]:
    """Those that sum the same gradients, or hold parts of the same states."""
    shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
    replicas = layout.data_parallel_replicate_degree
    one = (place._replace(replica=replica, shard=shard) for replica in range(replicas) for shard in range(shards))
    return tuple(sorted(rank_at(layout, each) for each in one))


def _members(rank: int, size: int, stride: int) -> tuple[int, ...]:
    """So many ranks that lie a stride apart, the rank among them."""
    first = rank - rank // stride % size * stride
    return tuple(range(first, first + size * stride, stride))


def _group(axis: str, letters: str, ranks: tuple[int, ...], layout: Layout, cluster: Cluster) -> RankGroup:
    """What is known of it by where its ranks lie."""
    nodes = [node_of(layout, cluster, rank) for rank in ranks]
    nodes_per_domain = cluster.accelerators_per_domain // cluster.accelerators_per_node
    domains = {node // nodes_per_domain for node in nodes}
    link = cluster.intra_node_link if len(domains) == 1 else cluster.inter_node_link
    ends = nodes if cluster.num_nodes > 1 else list(ranks)
    return RankGroup(
        axis=axis,
        letters=letters,
        ranks=ranks,
        link=link.name,
        num_nodes=len(domains),
        sent_bytes=0.0,
        exposed_s=0.0,
        slow_links=_slow_links(ends, cluster, in_a_row=axis == "pipeline"),
    )


def _slow_links(ends: list[int], cluster: Cluster, *, in_a_row: bool) -> tuple[LinkHealth, ...]:
    """What ails the links between ends that the ranks lie at."""
    found = pairwise(ends) if in_a_row else combinations(sorted(set(ends)), 2)
    known = {cluster.health_between(*pair): None for pair in found}
    return tuple(health for health in known if health is not None and not health.is_healthy)
