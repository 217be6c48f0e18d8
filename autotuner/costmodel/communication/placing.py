"""Placing: groups on the nodes that their ranks lie on, with what they load a described network with.

A table of a million layouts has a few hundred groups that differ, so that each of these is placed once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.link import Link
from autotuner.core.network import Network
from autotuner.costmodel.communication.group import FlatRing, Group
from autotuner.costmodel.communication.network_loads import network_loads, relayed_share
from autotuner.costmodel.communication.places import Places


def placed(group: Group, stride: Integers, cluster: Cluster, layouts: LayoutColumns | None) -> Group:
    """The group with its ranks on the nodes that they are dealt to, routed over the cluster's network.

    Args:
        group: As if ranks filled nodes one after the other, and one switch joined these.
        stride: How far apart the numbers of its ranks are.
        cluster: Whose nodes they are.
        layouts: Whose groups they are; None: ranks fill nodes, and nothing is asked of NCCL.
    """
    stride = np.broadcast_to(stride, np.shape(group.num_ranks))
    dealt = np.zeros(np.shape(group.num_ranks), dtype=np.bool_)
    is_cyclic = dealt if layouts is None else dealt | (layouts.rank_placement == RankPlacement.CYCLIC)
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
    """The first row of each group that differs by what decides its place and its routes, and for every row its own."""
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
    """One row per layout again."""
    return replace(
        few,
        num_ranks=group.num_ranks,
        ranks_per_node=few.ranks_per_node[which],
        crosses_nodes=few.crosses_nodes[which],
        layouts=group.layouts,
        network=tuple(load.take(which) for load in few.network),
        ring=None if few.ring is None else few.ring.take(which),
        relayed=np.broadcast_to(few.relayed, np.shape(few.ranks_per_node))[which],
    )


def _behind_switches(link: Link, network: Network | None) -> Link:
    """The link of ports, with what the lowest switches add to a message."""
    if network is None or not network.tiers:
        return link
    return replace(link, latency_s=link.latency_s + network.tiers[0].latency_s)


def _flat_ring(places: Places, inside: Integers, cluster: Cluster) -> FlatRing:
    """A ring of gloo: a single stream, which a network that says how many ports there are holds to one of them."""
    ports: Floats = np.where(places.is_cyclic, places.ring_ranks(1), inside)
    if cluster.network is not None:
        ranks_per_port = places.ranks_per_node / (cluster.network.ports_per_node or places.ranks_per_node)
        ports = np.where(places.is_cyclic, ports, np.minimum(ports, ranks_per_port))
    return FlatRing(ports=ports.astype(np.float64), steps_between=places.ring_steps_out(1))
