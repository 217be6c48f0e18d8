"""What NCCL's search of the topology finds in equal nodes: how many channels, and how much of the wires each takes.

NCCL searches every machine anew (src/graph/search.cc, 2.28.3); a description of a cluster has no wires to search. So
this is what the search comes to where every accelerator reaches all others of its node alike, and a port of its own.
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import Fp8Recipe
from autotuner.core.cluster import Cluster
from autotuner.core.units import GIGA
from autotuner.costmodel.communication.nccl_tables import (
    CHANNEL_GB_PER_S,
    MOST_CHANNELS,
    SUSTAINED_SHARE,
    Generation,
)
from autotuner.costmodel.communication.nccl_tuning import Channels, Wires

_PORT_SHARE = 0.96
"""What NCCL takes of a port: 24 of 25 GB/s, 48 of 50 (``speedArrayInter``)."""

_LEAST_NVLINK_GB_PER_S = 100.0
"""A GPU's NVLink has 150 GB/s one way or more, and PCIe 63 (catalog/links.toml)."""

_LEAST_COPIED_GB_PER_S, _WIDE_GB_PER_S, _FEW_CHANNELS = 25.0, 50.0, 4
"""Channels of so much are doubled; from Hopper on, where there are more than a few, only wide ones."""


def generation_of(accelerator: Accelerator) -> Generation:
    """The generation of a GPU of NVIDIA, by the number formats and scales that it has."""
    if accelerator.applies_block_scales:
        return Generation.BLACKWELL
    if Fp8Recipe.BLOCKWISE in accelerator.fp8_recipes:
        return Generation.HOPPER
    return Generation.AMPERE if accelerator.bf16_flop_per_s else Generation.VOLTA


def wires_of(num_ranks: int, ranks_per_node: int, cluster: Cluster) -> Wires:
    """The wires between so many ranks, so many of which share each node.

    Args:
        num_ranks: Two or more.
        ranks_per_node: Of the group, at most all of it.
        cluster: Of GPUs of NVIDIA.
    """
    generation = generation_of(cluster.accelerator)
    link, num_nodes = cluster.intra_node_link, -(-num_ranks // ranks_per_node)
    inside = link.bandwidth_bytes_per_s / GIGA * SUSTAINED_SHARE[generation]
    port = _PORT_SHARE * cluster.inter_node_link.bandwidth_bytes_per_s / GIGA
    if num_nodes == 1:
        rings = _inside_node(inside, generation)
        trees = rings
    else:
        rings = _over_ports(inside, port, _ports(ranks_per_node, cluster), generation)
        trees = replace(rings, inside_gb_per_s=min(2 * rings.between_gb_per_s, inside / rings.count))
    adds = link.multicast_efficiency > 0 and ranks_per_node > 1
    head = inside / ranks_per_node
    return Wires(
        num_ranks=num_ranks,
        num_nodes=num_nodes,
        generation=generation,
        has_nvlink=link.bandwidth_bytes_per_s / GIGA >= _LEAST_NVLINK_GB_PER_S,
        rings=rings,
        trees=trees,
        switched=_heads(ranks_per_node, head, head * 2 if num_nodes == 1 else min(head, port)) if adds else None,
        network_adds=num_nodes > 1 and cluster.network is not None and cluster.network.adds,
    )


def _heads(count: int, inside: float, between: float) -> Channels:
    """One channel per accelerator, whose part of the bytes it asks the switches for."""
    return Channels(count=count, inside_gb_per_s=inside, between_gb_per_s=between)


def _ports(ranks_per_node: int, cluster: Cluster) -> int:
    """Ports that the ranks of a group have in a node: one each, unless a node's accelerators share fewer."""
    of_node = cluster.network.ports_per_node if cluster.network is not None else None
    per_rank = 1.0 if of_node is None else min(1.0, of_node / cluster.accelerators_per_node)
    return max(1, int(ranks_per_node * per_rank))


def _inside_node(total: float, generation: Generation) -> Channels:
    count = max(1, int(total / CHANNEL_GB_PER_S[generation]))
    return _doubled(Channels(count=count, inside_gb_per_s=total / count, between_gb_per_s=total / count), generation)


def _over_ports(inside: float, port: float, ports: int, generation: Generation) -> Channels:
    """A channel for each port; the links inside pass as much as comes in."""
    each = min(port, inside / ports)
    return _doubled(Channels(count=ports, inside_gb_per_s=each, between_gb_per_s=each), generation)


def _doubled(channels: Channels, generation: Generation) -> Channels:
    """Twice as many channels of half as much each, where NCCL makes copies."""
    each, count = channels.inside_gb_per_s, channels.count
    many = generation >= Generation.HOPPER and each < _WIDE_GB_PER_S and count > _FEW_CHANNELS
    if each < _LEAST_COPIED_GB_PER_S or many:
        return channels
    doubled = min(2 * count, MOST_CHANNELS[generation])
    share = count / doubled
    return Channels(count=doubled, inside_gb_per_s=each * share, between_gb_per_s=channels.between_gb_per_s * share)
