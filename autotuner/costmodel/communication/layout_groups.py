"""Groups of a layout's axes, and their places on nodes.

A table of a million layouts has a few hundred different groups, and each of them is placed only once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from autotuner.core import placement
from autotuner.core.choices import RankOrder, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import Link
from autotuner.core.network import Network
from autotuner.core.placement import Spread, pair_crosses, ring_crosses
from autotuner.costmodel.communication.group import FlatRing, Group, slow_of
from autotuner.costmodel.communication.link_load import network_loads, relayed_share
from autotuner.costmodel.communication.node_topology import wired_node
from autotuner.costmodel.communication.rank_placement import Places
from autotuner.costmodel.shared.table import taken, where


def placed(group: Group, stride: Integers, cluster: Cluster, layouts: LayoutColumns | None) -> Group:
    """Return the group after its ranks are placed on nodes as each layout says: in blocks, or cyclically.

    The placement decides how many ranks of a group share a node, and how much the group loads the network.

    Args:
        group: Group with block placement, on nodes that are joined by one switch.
        stride: Difference between the numbers of neighbouring ranks of the group.
        cluster: Cluster with the nodes and the network.
        layouts: Layouts of the groups; None: block placement, and NCCL's own choices.
    """
    stride = np.broadcast_to(stride, np.shape(group.num_ranks))
    in_blocks = np.zeros(np.shape(group.num_ranks), dtype=np.bool_)
    is_cyclic = in_blocks if layouts is None else in_blocks | (layouts.rank_placement == RankPlacement.CYCLIC)
    rows, which = _distinct(group, stride, is_cyclic, cluster)
    places = Places(
        num_ranks=group.num_ranks[rows],
        stride=stride[rows],
        is_cyclic=is_cyclic[rows],
        num_nodes=cluster.num_nodes,
        ranks_per_node=cluster.accelerators_per_node,
        sorts_ring=cluster.accelerator.kind != "cpu",
    )
    few = replace(
        group,
        ranks_per_node=group.ranks_per_node[rows],
        crosses_nodes=group.crosses_nodes[rows],
        layouts=None if group.layouts is None else group.layouts.take(rows),
    )
    return _spread_out(_routed(few, places, cluster), which, group)


def _distinct(group: Group, stride: Integers, is_cyclic: Booleans, cluster: Cluster) -> tuple[Integers, Integers]:
    """Return the first row of each distinct group, and for every row the index of its group.

    Groups are equal if they have the same size, place and routes.
    """
    key = (group.num_ranks * (cluster.world_size + 1) + stride) * 2 + is_cyclic
    if group.layouts is not None and cluster.network is not None:
        most = int(group.layouts.queue_pairs.max(initial=1)) + 1
        key = (key * 2 + group.layouts.pxn) * most + group.layouts.queue_pairs
    _, rows, which = np.unique(key, return_index=True, return_inverse=True)
    return rows, which


def _routed(group: Group, places: Places, cluster: Cluster) -> Group:
    domain = cluster.accelerators_per_domain // cluster.accelerators_per_node
    inside = np.where(places.is_cyclic, places.ranks_below(domain), group.ranks_per_node)
    network = cluster.network
    return replace(
        group,
        ranks_per_node=inside,
        crosses_nodes=np.where(places.is_cyclic, places.leave(domain), group.crosses_nodes),
        inter_node_link=_behind_switches(group.inter_node_link, network),
        network=network_loads(places, cluster, group.layouts),
        ring=None if places.sorts_ring else _flat_ring(places, inside, cluster),
        relayed=0.0 if network is None else relayed_share(inside, places, network, group.layouts),
    )


def _spread_out(few: Group, which: Integers, group: Group) -> Group:
    """Return one row per layout from the rows of distinct groups."""
    return replace(
        few,
        num_ranks=group.num_ranks,
        ranks_per_node=few.ranks_per_node[which],
        crosses_nodes=few.crosses_nodes[which],
        layouts=group.layouts,
        network=tuple(taken(load, which) for load in few.network),
        ring=None if few.ring is None else taken(few.ring, which),
        relayed=np.broadcast_to(few.relayed, np.shape(few.ranks_per_node))[which],
    )


def _behind_switches(link: Link, network: Network | None) -> Link:
    """Return the link of the network ports, with the latency of the lowest switches added."""
    if network is None or not network.tiers:
        return link
    return replace(link, latency_s=link.latency_s + network.tiers[0].latency_s)


def _flat_ring(places: Places, inside: Integers, cluster: Cluster) -> FlatRing:
    """Return the ring of a gloo collective.

    It is one stream, so a network with a known number of ports limits it to one port.
    """
    ports: Floats = np.where(places.is_cyclic, places.ring_ranks(1), inside)
    if cluster.network is not None:
        ranks_per_port = places.ranks_per_node / (cluster.network.ports_per_node or places.ranks_per_node)
        ports = np.where(places.is_cyclic, ports, np.minimum(ports, ranks_per_port))
    return FlatRing(ports=ports.astype(np.float64), steps_between=places.ring_steps_out(1))


def group_of(num_ranks: Integers, stride: Integers, cluster: Cluster, layouts: LayoutColumns | None = None) -> Group:
    """Return the groups of ``num_ranks`` ranks whose numbers differ by ``stride``, with the links between them.

    If node borders cut through groups, each group may be cut at a different place. The group with the fewest ranks on
    one side of a border decides how many network ports all rings can use.

    Args:
        num_ranks: Number of ranks of each group, of shape (layouts,).
        stride: Difference between the numbers of neighbouring ranks of a group, of shape (layouts,).
        cluster: Cluster with nodes, links and network.
        layouts: Layouts that configure rank placement and NCCL; None: block placement, and NCCL's own choices.
    """
    group = _in_blocks(num_ranks, stride, cluster, layouts)
    is_cyclic = layouts is not None and bool(layouts.rank_placement.any())
    if cluster.network is not None or is_cyclic:
        group = placed(group, stride, cluster, layouts)
    return group if cluster.wiring is None else _wired(group, stride, cluster)


def _wired(group: Group, stride: Integers, cluster: Cluster) -> Group:
    """Return the group with the wiring inside its nodes.

    With cyclic placement, ranks of a group that share a node are closer together.
    """
    layouts = group.layouts
    is_cyclic = False if layouts is None else layouts.rank_placement == RankPlacement.CYCLIC
    apart = np.where(is_cyclic, np.maximum(1, stride // cluster.num_nodes), stride)
    return replace(group, wired=wired_node(group.ranks_per_node, apart, cluster))


def _in_blocks(num_ranks: Integers, stride: Integers, cluster: Cluster, layouts: LayoutColumns | None) -> Group:
    crosses = cluster.crosses_nodes(num_ranks, stride)
    domain = cluster.accelerators_per_domain
    neighbours = np.gcd(domain, num_ranks * stride)
    return Group(
        num_ranks=num_ranks,
        ranks_per_node=np.where(crosses, np.clip(neighbours // stride, 1, num_ranks), num_ranks),
        crosses_nodes=crosses,
        intra_node_link=cluster.intra_node_link,
        inter_node_link=cluster.inter_node_link,
        oversubscription=cluster.oversubscription,
        layouts=None if cluster.accelerator.kind == "cpu" else layouts,
    )


# ---------------------------------------------------------------- the groups of a layout, by Layout's rank order
def tensor_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of tensor ranks, which split matrix products among them and have consecutive numbers."""
    return _ring(x, cluster, placement.tensor_spread(_one(x)))


def context_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of context ranks, which split the same sequences among them."""
    return _ring(x, cluster, placement.context_spread(_one(x)))


def shard_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of ranks that split the parameters (FSDP): shard ranks and context ranks together."""
    return _ring(x, cluster, placement.shard_spread(_one(x)))


def replicate_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of ranks that hold the same shard (replicas). Without sharding, they include context ranks."""
    replicas, joined = placement.replicate_spreads(_one(x))
    num_ranks, stride = _column(replicas.num_ranks), _column(replicas.stride)
    num_joined = _column(joined.num_ranks)
    inner = np.where(x.data_parallel_shard_degree == 1, joined.stride, stride)
    whole = group_of(num_ranks * num_joined, inner, cluster, x)
    if x.rank_order.any():  # stages lie between replicas, whose context ranks still lie side by side
        apart, swapped = group_of(num_ranks, stride, cluster, x), x.rank_order == RankOrder.REPLICAS_OUTERMOST
        loads = zip(apart.network, whole.network, strict=True)
        whole = replace(
            whole,
            ranks_per_node=np.where(swapped, apart.ranks_per_node * num_joined, whole.ranks_per_node),
            crosses_nodes=np.where(swapped, apart.crosses_nodes, whole.crosses_nodes),
            network=tuple(where(swapped, one.joined(num_joined), other) for one, other in loads),
            ring=_either_ring(swapped, apart.ring, whole.ring),
        )
    return replace(whole, slow=slow_of(x, cluster, ring_crosses, replicas, joined))


def exchange_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of replicas that exchange gradients in a lossy way, such as compressed or only every few steps.

    The replicas of a group hold the same shard and have the same context rank.
    """
    replicas, _ = placement.replicate_spreads(_one(x))
    return _ring(x, cluster, replicas)


def expert_group(x: LayoutColumns, job: Job) -> Group:
    """Return the groups of expert ranks, which hold different experts of the same layer.

    A group consists of the context ranks and shard ranks with the nearest numbers, and often also of tensor ranks.

    Source: Megatron-LM core 0.13, parallel_state.py: expert ranks are numbered tensor-expert-data-pipeline.
    """
    spread = placement.expert_spread(_one(x), job)
    group = group_of(_column(spread.num_ranks), _column(spread.stride), job.cluster, x)
    return replace(group, slow=slow_of(x, job.cluster, pair_crosses, spread))


def expert_shard_group(x: LayoutColumns, job: Job) -> Group:
    """Return the groups of ranks that hold the same experts and split these experts' parameters among them."""
    return _ring(x, job.cluster, placement.expert_shard_spread(_one(x), job))


def pipeline_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Return the groups of pipeline ranks. A group has one rank from each position in the pipeline.

    The groups ignore degraded links between pipeline ranks. ``Hops`` takes such links into account.
    """
    spread = placement.pipeline_spread(_one(x))
    return group_of(_column(spread.num_ranks), _column(spread.stride), cluster, x)


def _either_ring(rows: Booleans, one: FlatRing | None, other: FlatRing | None) -> FlatRing | None:
    if one is None or other is None:
        return other
    return FlatRing(
        ports=np.where(rows, one.ports, other.ports),
        steps_between=np.where(rows, one.steps_between, other.steps_between),
    )


def _ring(x: LayoutColumns, cluster: Cluster, spread: Spread) -> Group:
    group = group_of(_column(spread.num_ranks), _column(spread.stride), cluster, x)
    return replace(group, slow=slow_of(x, cluster, ring_crosses, spread))


def _one(x: LayoutColumns) -> Layout:
    """Return columns typed as one layout, for formulas whose operators also work on columns."""
    return cast("Layout", x)


def _column(number: int) -> Integers:
    return cast("Integers", number)
