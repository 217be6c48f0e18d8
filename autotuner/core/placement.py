"""Placement: the rank, node and device of each part of a layout, and the links that its groups cross.

The groups of each axis lie evenly: every block of ``num_ranks * stride`` ranks holds ``stride`` groups, whose members
lie ``stride`` apart. So the test for a link inside a ring of an axis is arithmetic: a number with a certain remainder
must lie in a certain interval. Enumerating the ranks (``placement``) gives the same result, and tests compare both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from autotuner.core.choices import RankOrder, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkEnds, LinkHealth
from autotuner.core.stages import V_SCHEDULES
from autotuner.core.value import Count, value


class Place(NamedTuple):
    """The coordinates of a rank on the grid of a layout's axes: pipeline stage, replica, shard and tensor rank."""

    stage: int
    replica: int
    shard: int
    tensor: int


def rank_at(layout: Layout, place: Place) -> int:
    """Return the number of the rank with these grid coordinates.

    The numbers depend on the layout's ``rank_order`` and ``stage_rotation``.
    """
    shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
    stages, replicas = layout.pipeline_parallel_degree, layout.data_parallel_replicate_degree
    stage = (place.stage + layout.stage_rotation) % stages
    if layout.rank_order == RankOrder.REPLICAS_OUTERMOST:
        outer = place.replica * stages + stage
    else:
        outer = stage * replicas + place.replica
    return (outer * shards + place.shard) * layout.tensor_parallel_degree + place.tensor


def place_of(layout: Layout, rank: int) -> Place:
    """Return the grid coordinates (stage, replica, shard, tensor) of the rank with this number.

    Example:
        >>> place_of(Layout.parse("fsdp2 tp4 pp2"), 13)
        Place(stage=1, replica=0, shard=1, tensor=1)
    """
    outer, tensor = divmod(rank, layout.tensor_parallel_degree)
    outer, shard = divmod(outer, layout.data_parallel_shard_degree * layout.context_parallel_degree)
    stages, replicas = layout.pipeline_parallel_degree, layout.data_parallel_replicate_degree
    if layout.rank_order == RankOrder.REPLICAS_OUTERMOST:
        replica, stage = divmod(outer, stages)
    else:
        stage, replica = divmod(outer, replicas)
    return Place((stage - layout.stage_rotation) % stages, replica, shard, tensor)


def node_of(layout: Layout, cluster: Cluster, rank: int) -> int:
    """Return the number of the node on which this rank runs, which depends on the layout's ``rank_placement``.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> node_of(Layout.parse("tp8 pp2"), load_cluster("h100:16"), 9)
        1
    """
    if layout.rank_placement == RankPlacement.CYCLIC:
        return rank % cluster.num_nodes
    return rank // cluster.accelerators_per_node


def places(layout: Layout) -> Iterator[Place]:
    """Yield the grid coordinates of every rank, stage by stage."""
    for stage in range(layout.pipeline_parallel_degree):
        for replica in range(layout.data_parallel_replicate_degree):
            for shard in range(layout.data_parallel_shard_degree * layout.context_parallel_degree):
                for tensor in range(layout.tensor_parallel_degree):
                    yield Place(stage, replica, shard, tensor)


def stage_links(layout: Layout, cluster: Cluster, stage: int) -> frozenset[LinkEnds]:
    """Return the links over which the ranks of a stage send to the next stage, each as the numbers of its two ends.

    The result is empty if both stages share their nodes (or, in a cluster of one node, their accelerators).
    """
    found = set()
    for place in places(layout):
        if place.stage == stage:
            one = _link_end(layout, cluster, place)
            other = _link_end(layout, cluster, place._replace(stage=stage + 1))
            if one != other:
                found.add((min(one, other), max(one, other)))
    return frozenset(found)


def _link_end(layout: Layout, cluster: Cluster, place: Place) -> int:
    rank = rank_at(layout, place)
    return node_of(layout, cluster, rank) if cluster.num_nodes > 1 else cluster.link_end(rank)


@value
class Nodes:
    """The nodes of a job, which all have equally many ranks, and the rule that assigns rank numbers to nodes."""

    num_nodes: Count
    ranks_per_node: Count
    placement: RankPlacement = RankPlacement.BLOCK

    def node_of(self, rank: int) -> int:
        """Return the number of the node on which this rank runs."""
        return rank % self.num_nodes if self.placement == RankPlacement.CYCLIC else rank // self.ranks_per_node

    def number_of(self, node: int, local_rank: int) -> int:
        """Return the number of the rank at a position within a node. Rank 0 is always the first rank of node 0.

        Args:
            node: Number of the node.
            local_rank: Position of the rank within its node, from 0.
        """
        if self.placement == RankPlacement.CYCLIC:
            return local_rank * self.num_nodes + node
        return node * self.ranks_per_node + local_rank


class Spread(NamedTuple):
    """The size of one axis's groups of ranks, and the difference between neighbouring rank numbers in a group."""

    num_ranks: int
    stride: int


# ---------------------------------------------------------------- the groups of a layout, by its rank order
def tensor_spread(x: Layout) -> Spread:
    """Return the size of tensor groups and their stride in rank numbers, which is 1."""
    return Spread(x.tensor_parallel_degree, 1)


def context_spread(x: Layout) -> Spread:
    """Return the size of context groups (ranks that split a sequence) and their stride in rank numbers."""
    return Spread(x.context_parallel_degree, x.tensor_parallel_degree)


def shard_spread(x: Layout) -> Spread:
    """Return the size of shard groups (ranks that split parameters) and their stride in rank numbers.

    Shard ranks and context ranks together form these groups.
    """
    return Spread(x.data_parallel_shard_degree * x.context_parallel_degree, x.tensor_parallel_degree)


def replicate_spreads(x: Layout) -> tuple[Spread, Spread]:
    """Return the sizes and strides of two kinds of groups whose ranks hold the same parameters.

    The first kind are the replicas of one shard. The second kind are context groups, if data-parallel ranks do not
    shard; otherwise its groups have size 1.
    """
    shard = shard_spread(x)
    between = 1 + (x.pipeline_parallel_degree - 1) * (x.rank_order == RankOrder.REPLICAS_OUTERMOST)
    joined = 1 + (x.context_parallel_degree - 1) * (x.data_parallel_shard_degree == 1)
    return (
        Spread(x.data_parallel_replicate_degree, shard.num_ranks * shard.stride * between),
        Spread(joined, x.tensor_parallel_degree),
    )


def expert_spread(x: Layout, job: Job) -> Spread:
    """Return the size of expert-parallel groups and their stride in rank numbers.

    An expert-parallel group consists of context and shard ranks with the nearest numbers. Unless tensor ranks split
    every expert, it also contains the tensor ranks.

    Source: Megatron-LM core 0.13, parallel_state.py: expert ranks are numbered tensor-expert-data-pipeline.
    """
    whole = (x.expert_parallel_degree > 1) & (not job.stack.splits_experts)
    return Spread(x.expert_parallel_degree, x.tensor_parallel_degree - (x.tensor_parallel_degree - 1) * whole)


def expert_shard_spread(x: Layout, job: Job) -> Spread:
    """Return the size and stride of groups of shard ranks that hold the same experts and split their parameters."""
    expert, shard = expert_spread(x, job), shard_spread(x)
    inner = expert.num_ranks * expert.stride
    return Spread(_larger(1, shard.num_ranks * shard.stride // inner), inner)


def pipeline_spread(x: Layout) -> Spread:
    """Return the size of pipeline groups (one rank per stage) and their stride in rank numbers.

    Neither number depends on ``stage_rotation``, which only moves the stages to other ranks of their group.
    """
    return Spread(x.pipeline_parallel_degree, x.pipeline_stride)


# ---------------------------------------------------------------- what reaches over a link
def ring_crosses(spread: Spread, health: LinkHealth, cluster: Cluster) -> bool:
    """Return True if any group's ring uses this link: two neighbours in the ring lie at the link's two ends.

    The first and the last rank of a ring are neighbours, too.

    Args:
        spread: Size and stride of the groups.
        health: The link, or a class of links.
        cluster: Cluster with the ranks in the order of its nodes.
    """
    num_ranks, stride = spread
    if health.ends is None:
        return (health.link_class == cluster.link_class) & _leaves_end(spread, cluster)
    onward = _crosses(health, cluster, (stride, num_ranks * stride), 0, (num_ranks - 1) * stride)
    around = (-(num_ranks - 1) * stride, num_ranks * stride)
    return onward | _crosses(health, cluster, around, (num_ranks - 1) * stride, stride)


def pair_crosses(spread: Spread, health: LinkHealth, cluster: Cluster) -> bool:
    """Return True if two ranks of any group lie at the two ends of this link. An all-to-all uses all such links.

    Args:
        spread: Size and stride of the groups.
        health: The link, or a class of links.
        cluster: Cluster with the ranks in the order of its nodes.
    """
    if health.ends is None:
        return (health.link_class == cluster.link_class) & _leaves_end(spread, cluster)
    block, size = spread.num_ranks * spread.stride, cluster.ranks_per_link_end
    low, high = (end * size for end in health.ends)
    shared = high // block  # the one block of ranks that may lie at both ends
    first, stop = _larger(low, shared * block), _smaller(high + size, (shared + 1) * block)
    apart = (high - first) % spread.stride, (first - high) % spread.stride
    return (first < low + size) & (spread.num_ranks > 1) & ((apart[0] < low + size - first) | (apart[1] < stop - high))


def cyclic_crosses(spread: Spread, health: LinkHealth, cluster: Cluster) -> bool:
    """Return True if two ranks of any group lie at the two ends of this link, with cyclic placement of ranks.

    Cyclic placement puts rank i on node i modulo the number of nodes. If the size of the groups does not divide the
    number of nodes, the result may also be True for a link that no group uses.

    Args:
        spread: Size and stride of the groups.
        health: The link, or a class of links.
        cluster: Cluster on whose nodes the ranks are placed in turn.
    """
    num_ranks, stride = spread
    nodes, block = cluster.num_nodes, num_ranks * stride
    if health.ends is None:
        return (health.link_class == cluster.link_class) & (num_ranks > 1) & (stride % nodes != 0)
    low, high = health.ends
    apart = high - low
    around = (block > nodes) & (apart % _common(stride, nodes) == 0)
    onward = (apart % stride == 0) & (apart < block)
    back = ((nodes - apart) % stride == 0) & (nodes - apart < block)
    in_line = (block <= nodes) & ((onward & (low // block == high // block)) | ((onward | back) & (nodes % block != 0)))
    return (num_ranks > 1) & (around | in_line)


def hop_crosses(x: Layout, hop: int, health: LinkHealth, cluster: Cluster) -> bool:
    """Return True if, in any pipeline, the rank at position ``hop`` sends to the next rank over this link.

    The last rank of a pipeline sends to its first rank.

    Args:
        x: The layout.
        hop: Position of the sending rank in its pipeline, from 0.
        health: The link, or a class of links.
        cluster: The cluster.
    """
    is_cyclic = x.rank_placement == RankPlacement.CYCLIC
    filled = _hop_crosses_between_blocks(x, hop, health, cluster)
    return (filled & (is_cyclic == 0)) | (is_cyclic & cyclic_crosses(pipeline_spread(x), health, cluster))


def _hop_crosses_between_blocks(x: Layout, hop: int, health: LinkHealth, cluster: Cluster) -> bool:
    num_ranks, stride = pipeline_spread(x)
    place = (hop + x.stage_rotation) % num_ranks
    distance = stride - num_ranks * stride * (place == num_ranks - 1)
    if health.ends is None:
        return (health.link_class == cluster.link_class) & _hop_leaves_end(place, num_ranks, stride, cluster)
    return _crosses(health, cluster, (distance, num_ranks * stride), place * stride, stride)


def pipeline_crosses(x: Layout, health: LinkHealth, cluster: Cluster) -> bool:
    """Return True if, in any pipeline, any stage sends to the next stage over this link.

    The last rank sends to the first one only if the stages go round the ranks several times (interleaved schedules).

    Args:
        x: The layout.
        health: The link, or a class of links.
        cluster: The cluster.
    """
    is_cyclic = x.rank_placement == RankPlacement.CYCLIC
    filled = _pipeline_crosses_between_blocks(x, health, cluster)
    return (filled & (is_cyclic == 0)) | (is_cyclic & cyclic_crosses(pipeline_spread(x), health, cluster))


def _pipeline_crosses_between_blocks(x: Layout, health: LinkHealth, cluster: Cluster) -> bool:
    num_ranks, stride = pipeline_spread(x)
    if health.ends is None:
        return (health.link_class == cluster.link_class) & _leaves_end(Spread(num_ranks, stride), cluster)
    last = (num_ranks - 1 + x.stage_rotation) % num_ranks  # the place of the ring from which no rank sends
    folds = (x.pipeline_schedule == V_SCHEDULES[0]) | (x.pipeline_schedule == V_SCHEDULES[1])
    goes_round = (x.virtual_stages_per_rank > 1) & (folds == 0)
    onward, block = (stride, num_ranks * stride), num_ranks * stride
    before = _crosses(health, cluster, onward, 0, _smaller(last, num_ranks - 1) * stride)
    behind = _crosses(health, cluster, onward, (last + 1) * stride, _larger(0, num_ranks - 2 - last) * stride)
    around = _crosses(health, cluster, (stride - block, block), block - stride, stride)
    unused = _hop_crosses_between_blocks(x, num_ranks - 1, health, cluster)
    return (num_ranks > 1) & (before | behind | (around & (last != num_ranks - 1)) | (unused & goes_round))


# ---------------------------------------------------------------- remainders and intervals
def _leaves_end(spread: Spread, cluster: Cluster) -> bool:
    """Return True if any group of ranks spans several ends: several nodes, or several accelerators of one node."""
    span, size = spread.num_ranks * spread.stride, cluster.ranks_per_link_end
    return (spread.num_ranks > 1) & ((span > size) | ((size % span != 0) & (cluster.world_size > size)))


def _hop_leaves_end(place: int, num_ranks: int, stride: int, cluster: Cluster) -> bool:
    """Return True if, in some group, the ranks at a place and at the next place lie at different ends of a link.

    An end is a node, or an accelerator in a cluster of one node.
    """
    block = num_ranks * stride
    step = _common(block, cluster.ranks_per_link_end)
    onward = ((place + 2) * stride - 1) // step > (place * stride) // step
    return (num_ranks > 1) & (((place < num_ranks - 1) & onward) | ((place == num_ranks - 1) & (step < block)))


def _crosses(health: LinkHealth, cluster: Cluster, onward: tuple[int, int], first: int, length: int) -> bool:
    """Return True if any rank with a remainder in ``first .. first + length - 1`` communicates over the link.

    Args:
        health: State of a link with two ends.
        cluster: The cluster that has the link.
        onward: Distance from that rank to its neighbour in the group, and number of ranks in a block of groups.
        first: Lowest remainder by the block.
        length: Number of remainders.
    """
    assert health.ends is not None
    low, high = health.ends
    return _one_way(cluster, (low, high), onward, first, length) | _one_way(cluster, (high, low), onward, first, length)


def _one_way(cluster: Cluster, ends: tuple[int, int], onward: tuple[int, int], first: int, length: int) -> bool:
    size, (distance, block) = cluster.ranks_per_link_end, onward
    start = _larger(ends[0] * size, ends[1] * size - distance)
    stop = _smaller((ends[0] + 1) * size, (ends[1] + 1) * size - distance)
    into = (start - first) % block
    return (start < stop) & (length > 0) & ((into < length) | (start + block - into < stop))


def _larger(left: int, right: int) -> int:
    return left + (right - left) * (right > left)


def _smaller(left: int, right: int) -> int:
    return left + (right - left) * (right < left)


def _common(number: int, whole: int) -> int:
    """Return the greatest common divisor of a number, or of each number of a column, and a whole number."""
    found = 1
    for divisor in range(2, whole + 1):
        if whole % divisor == 0:
            found = found + (divisor - found) * (number % divisor == 0)
    return found
