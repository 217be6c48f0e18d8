"""Communication of a layout: which ranks communicate, over which links, and which link limits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

from autotuner.core.choices import ContextExchange, RankOrder, RankPlacement, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import (
    Place,
    context_spread,
    cyclic_crosses,
    expert_spread,
    node_of,
    pair_crosses,
    pipeline_crosses,
    place_of,
    rank_at,
    replicate_spreads,
    ring_crosses,
    shard_spread,
    tensor_spread,
)
from autotuner.costmodel.communication.group import Group, LinkTime
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_group,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)
from autotuner.costmodel.communication.nccl import Collective, bands, wires_of
from autotuner.costmodel.details import exchanges
from autotuner.costmodel.shared.micro_batch import width_split

Traffic = Literal["ring", "all_to_all", "send"]
"""Pattern of traffic: around a ring, from every rank to all others in equal parts, or to the next rank of the group."""

_LINKS: dict[Traffic, Callable[[Group], Iterable[LinkTime]]] = {
    "ring": Group.ring_links,
    "all_to_all": Group.all_to_all_links,
    "send": Group.send_links,
}
"""Links that each pattern of traffic uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The share of time for which one kind of link is busy while the rank groups of one parallel axis communicate."""

    link: str
    """Name of the links: a link of the catalog, ``leaf uplinks``, ``torus dimension 1``."""
    busy_share: float
    """Time that these links are busy divided by the time of the limiting link, 0..1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The path of one parallel axis's traffic: the links that it uses, and the bandwidth that each rank gets.

    All rank groups of the axis communicate at once.
    """

    axis: str
    """Axis of the groups: ``tensor``, ``context``, ``expert``, ``pipeline``, ``shard`` or ``replicate``."""
    traffic: Traffic
    """Pattern of the groups' traffic."""
    num_ranks: int
    """Number of ranks of one group."""
    num_nodes: int
    """Number of nodes of one group. An NVLink domain of several nodes counts as one node."""
    limiting_link: str
    """Name of the links that are busy for the longest time."""
    bytes_per_s: float
    """Bandwidth of each rank for long messages: the bytes that it sends divided by the time that they take."""
    links: tuple[LinkUse, ...]
    """All links that the traffic uses, from the links inside nodes upwards."""


def routes(layout: Layout, job: Job) -> tuple[Route, ...]:
    """Return the links and the bandwidth of each parallel axis whose groups have several ranks.

    The innermost axis comes first. The bandwidth of a collective without a hierarchy is that of a ring. If the cluster
    describes no network and no wiring inside nodes, and ranks fill one node after the other, the result is empty: each
    group then uses only one kind of link, and ``RankGroup.link`` names it.
    """
    if job.cluster.network is None and job.cluster.wiring is None and layout.rank_placement == RankPlacement.BLOCK:
        return ()
    x = LayoutColumns.from_layouts([layout])
    return tuple(
        _route(axis, traffic, group)
        for axis, traffic, group in _groups_by_axis(layout, x, job)
        if group.num_ranks[0] > 1
    )


def _groups_by_axis(layout: Layout, x: LayoutColumns, job: Job) -> Iterator[tuple[str, Traffic, Group]]:
    yield "tensor", "ring", tensor_group(x, job.cluster)
    yield "context", _OF_EXCHANGE[layout.context_exchange], context_group(x, job.cluster)
    yield "expert", "all_to_all" if job.stack.dispatch != "all_gather" else "ring", expert_group(x, job)
    yield "pipeline", "send", pipeline_group(x, job.cluster)
    yield "shard", "ring", shard_group(x, job.cluster)
    yield "replicate", "ring", replicate_group(x, job.cluster)


_OF_EXCHANGE: dict[ContextExchange, Traffic] = {
    ContextExchange.RING: "send",
    ContextExchange.ALL_GATHER: "ring",
    ContextExchange.ALL_TO_ALL: "all_to_all",
}


def _route(axis: str, traffic: Traffic, group: Group) -> Route:
    used = [(link.name, float(link.s_per_byte[0])) for link in _LINKS[traffic](group) if link.s_per_byte[0] > 0]
    limiting, longest = max(used, key=lambda use: use[1])
    # for rings and all-to-alls, the load of links was computed for the bytes of one rank
    sent = 1 if traffic == "send" else int(group.num_ranks[0]) - 1
    return Route(
        axis=axis,
        traffic=traffic,
        num_ranks=int(group.num_ranks[0]),
        num_nodes=int(group.num_nodes[0]),
        limiting_link=limiting,
        bytes_per_s=sent / longest,
        links=tuple(LinkUse(link=name, busy_share=seconds / longest) for name, seconds in used),
    )


# ---------------------------------------------------------------- the groups of one rank
@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """The ranks with which one rank communicates along one parallel axis, such as its tensor group."""

    axis: str
    """Axis of the group: ``tensor``, ``context``, ``expert``, ``pipeline`` or ``data``. The data group includes context
    ranks, because they sum the same gradients."""
    letters: str
    """Short name of the degree, used as a column heading: ``tp``."""
    ranks: tuple[int, ...]
    """Ranks of the group, in order."""
    link: str
    """Name of the slowest link between ranks of the group; on a described network, the link that limits the group."""
    num_nodes: int
    """Number of nodes of the group. An NVLink domain of several nodes counts as one node."""
    sent_bytes: float
    """Bytes that a rank of the group sends in a step."""
    exposed_s: float
    """Seconds of a step in which a rank waits for the group's communication."""
    slow_links: tuple[LinkHealth, ...] = ()
    """Degraded links between ranks of this group; for a pipeline, between consecutive stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """The node of one rank, and all communication groups of this rank that have more than one rank."""

    rank: int
    pipeline_rank: int
    """Pipeline stage of the rank, or the first of its stages."""
    node: int
    """Number of the node in the cluster, from 0."""
    ranks_per_node: int
    """Number of ranks on each node."""
    ranks_per_stage: int
    """Number of ranks that have the same pipeline rank."""
    world_size: int
    groups: tuple[RankGroup, ...]
    """Groups of the rank, the innermost axis first."""
    stages_in_order: bool = True
    """True if stages are placed in the order of rank numbers, each on consecutive ranks."""
    is_cyclic: bool = False
    """True if consecutive ranks are on different nodes (cyclic placement); otherwise consecutive ranks share a node."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the job. If the ranks do not fill all nodes, the last node is only partly used."""
        return -(-self.world_size // self.ranks_per_node)

    def ranks_on(self, node: int) -> tuple[int, ...]:
        """Return the numbers of the ranks that run on a node, in the order of the node's accelerators."""
        if self.is_cyclic:
            return tuple(range(node, self.world_size, self.num_nodes))
        first = node * self.ranks_per_node
        return tuple(range(first, min(first + self.ranks_per_node, self.world_size)))

    def node_of(self, rank: int) -> int:
        """Return the index, from 0, of the node on which a rank runs. It depends on the layout's rank placement."""
        return rank % self.num_nodes if self.is_cyclic else rank // self.ranks_per_node


def rank_groups(layout: Layout, job: Job, rank: int) -> RankGroups:
    """Return the communication groups that one rank belongs to in a legal layout, such as its tensor group.

    Raises:
        InvalidInput: The layout has no rank with this number.
    """
    if not 0 <= rank < layout.world_size:
        rule = f"must be a rank of the layout, from 0 to {layout.world_size - 1}"
        raise InvalidInput("rank", rank, rule, min(max(rank, 0), layout.world_size - 1))
    place, is_cyclic = place_of(layout, rank), layout.rank_placement == RankPlacement.CYCLIC
    return RankGroups(
        rank=rank,
        pipeline_rank=place.stage,
        node=node_of(layout, job.cluster, rank),
        ranks_per_node=job.cluster.accelerators_per_node,
        ranks_per_stage=layout.world_size // layout.pipeline_parallel_degree,
        world_size=layout.world_size,
        groups=tuple(_groups(layout, job, rank, place)),
        stages_in_order=not is_cyclic and layout.rank_order == RankOrder.STAGES_OUTERMOST and not layout.stage_rotation,
        is_cyclic=is_cyclic,
    )


_DATA_AXES = ("shard", "replicate")


def _groups(layout: Layout, job: Job, rank: int, place: Place) -> Iterator[RankGroup]:
    found, cluster = exchanges(layout, job, place.stage), job.cluster
    nodes_per_domain = cluster.accelerators_per_domain // cluster.accelerators_per_node
    tensor, context = layout.tensor_parallel_degree, layout.context_parallel_degree
    inner = int(width_split(LayoutColumns.from_layouts([layout]), job)[0])
    slowest_last = sorted(
        routes(layout, job), key=lambda route: -route.bytes_per_s
    )  # for both axes of data-parallel ranks, this link is kept
    limiting = {("data" if one.axis in _DATA_AXES else one.axis): one.limiting_link for one in slowest_last}
    stages = [place._replace(stage=stage) for stage in range(layout.pipeline_parallel_degree)]
    for axis, letters, ranks, exchange in (
        ("tensor", "tp", _members(rank, tensor, 1), found.tensor),
        ("context", "cp", _members(rank, context, tensor), found.context),
        ("expert", "ep", _members(rank, layout.expert_parallel_degree, inner), found.expert),
        ("pipeline", "pp", tuple(rank_at(layout, one) for one in stages), found.pipeline),
        ("data", "dp" if context == 1 else "dp cp", _data_ranks(layout, place), found.data),
    ):
        if len(ranks) > 1:
            nodes = [node_of(layout, cluster, each) for each in ranks]
            domains = {node // nodes_per_domain for node in nodes}
            link = cluster.intra_node_link if len(domains) == 1 else cluster.inter_node_link
            ends = nodes if cluster.num_nodes > 1 else list(ranks)
            yield RankGroup(
                axis=axis,
                letters=letters,
                ranks=ranks,
                link=limiting.get(axis, link.name),
                num_nodes=len(domains),
                sent_bytes=exchange.sent_bytes,
                exposed_s=exchange.exposed_s,
                slow_links=_slow_links(ends, cluster, in_a_row=axis == "pipeline"),
            )


def _data_ranks(layout: Layout, place: Place) -> tuple[int, ...]:
    """Return the ranks that sum the same gradients as this rank, or that hold parts of the same states."""
    shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
    replicas = layout.data_parallel_replicate_degree
    one = (place._replace(replica=replica, shard=shard) for replica in range(replicas) for shard in range(shards))
    return tuple(sorted(rank_at(layout, each) for each in one))


def _members(rank: int, size: int, stride: int) -> tuple[int, ...]:
    """Return the ranks of a group that contains ``rank``, with neighbours ``stride`` apart."""
    first = rank - rank // stride % size * stride
    return tuple(range(first, first + size * stride, stride))


def _slow_links(ends: list[int], cluster: Cluster, *, in_a_row: bool) -> tuple[LinkHealth, ...]:
    """Return the degraded links between the ends at which the ranks are."""
    found = pairwise(ends) if in_a_row else combinations(sorted(set(ends)), 2)
    known = {cluster.health_between(*pair): None for pair in found}
    return tuple(health for health in known if health is not None and not health.is_healthy)


# ---------------------------------------------------------------- what NCCL would take
@dataclass(frozen=True, slots=True, kw_only=True)
class NcclBand:
    """A range of message sizes for which NCCL chooses one pair of algorithm and protocol."""

    from_bytes: int
    """Smallest size of the range in bytes. It ends where the next range begins."""
    algorithm: str
    """Algorithm that NCCL chooses: ``ring``, ``tree`` or ``nvls``."""
    protocol: str
    """Protocol that NCCL chooses: ``LL``, ``LL128`` or ``Simple``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWays:
    """The algorithms and protocols that NCCL would choose by default among the ranks of one parallel axis.

    The layout's own settings for NCCL are ignored.
    """

    axis: str
    """Axis of the group: ``tensor``, ``shard`` or ``replicate``."""
    collective: Collective
    """Kind of collective: ``all_reduce``, or ``all_gather`` of shards. Reduce-scatters of shards use the same
    choices."""
    num_ranks: int
    num_nodes: int
    bands: tuple[NcclBand, ...]
    """Choices for every size, the smallest size first."""


def nccl_ways(layout: Layout, job: Job) -> tuple[NcclWays, ...]:
    """Return the algorithms and protocols that NCCL would choose, for each axis with groups of several ranks.

    The result is empty if the accelerators are not CUDA devices, since NCCL does not run there.
    """
    if job.cluster.accelerator.kind != "cuda":
        return ()
    x = LayoutColumns.from_layouts([layout])
    is_sharded = layout.shard_level != ShardLevel.NONE and layout.data_parallel_shard_degree > 1
    groups = (
        ("tensor", tensor_group(x, job.cluster), layout.sequence_parallel),
        *((("shard", shard_group(x, job.cluster), True),) if is_sharded else ()),
        ("replicate", replicate_group(x, job.cluster), False),
    )
    return tuple(_nccl_ways(axis, one, job, gathers=gathers) for axis, one, gathers in groups if one.num_ranks[0] > 1)


def _nccl_ways(axis: str, group: Group, job: Job, *, gathers: bool) -> NcclWays:
    num_ranks, per_node = int(group.num_ranks[0]), int(group.ranks_per_node[0])
    wires = wires_of(num_ranks, per_node, job.cluster)
    collective: Collective = "all_gather" if gathers else "all_reduce"
    return NcclWays(
        axis=axis,
        collective=collective,
        num_ranks=num_ranks,
        num_nodes=wires.num_nodes,
        bands=tuple(
            NcclBand(from_bytes=one.from_bytes, algorithm=str(one.way.algorithm), protocol=str(one.way.protocol))
            for one in bands(collective, wires)
        ),
    )


# ---------------------------------------------------------------- links that are not healthy
@dataclass(frozen=True, slots=True, kw_only=True)
class CrossedLink:
    """A degraded link, and the parallel axes of a layout whose communication crosses it."""

    health: LinkHealth
    axes: tuple[str, ...]
    """Axes whose groups communicate over the link: ``tensor``, ``context``, ``expert``, ``pipeline`` and ``data``
    (shards and replicas); empty if the layout does not use the link."""


def crossed_links(layout: Layout, job: Job) -> tuple[CrossedLink, ...]:
    """Return every degraded link of the cluster, with the parallel axes of the layout that communicate over it."""
    slow = (health for health in job.cluster.link_health if not health.is_healthy)
    return tuple(CrossedLink(health=health, axes=tuple(_axes(health, layout, job))) for health in slow)


def _axes(health: LinkHealth, x: Layout, job: Job) -> Iterator[str]:
    cluster = job.cluster
    is_cyclic = x.rank_placement == RankPlacement.CYCLIC
    ring, pairs = (cyclic_crosses, cyclic_crosses) if is_cyclic else (ring_crosses, pair_crosses)
    if ring(tensor_spread(x), health, cluster):
        yield "tensor"
    context = pairs if x.context_exchange == ContextExchange.ALL_TO_ALL else ring
    if context(context_spread(x), health, cluster):
        yield "context"
    if pairs(expert_spread(x, job), health, cluster):
        yield "expert"
    if pipeline_crosses(x, health, cluster):
        yield "pipeline"
    if any(ring(spread, health, cluster) for spread in (shard_spread(x), *replicate_spreads(x))):
        yield "data"
