"""NCCL's own choice of algorithm, protocol and channels, by size.

Source: NCCL 2.28.3, src/graph/tuning.cc (``ncclTunerConstantsDefaults``, ``treeCorrectionFactor``, ``nvlsEfficiency``)
and src/graph/topo.h (assumed bandwidths of links). Triples are for LL, LL128 and Simple.

NCCL searches the wires of every machine (src/graph/search.cc, 2.28.3). The description of a cluster has no wires. So
this module contains the result of the search for nodes in which every accelerator is connected to all others in the
same way and has its own network port.

NCCL computes a latency and a bandwidth for each algorithm with each protocol, and uses the fastest. This module repeats
the computation of release 2.28.3 (src/graph/tuning.cc: ``ncclTopoTuneModel``, ``ncclTopoGetAlgoTime``). The result is
NCCL's own estimate and not a measurement. Predictions use the fitted constants of links instead (``collectives``).

Two cases are left out, because no description of a cluster states them: gathers with help of the network's switches,
and hosts whose processors are not Intel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Literal, TypeAlias

from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import Fp8Recipe
from autotuner.core.cluster import Cluster
from autotuner.core.units import GIGA

Triple: TypeAlias = tuple[float, float, float]
"""Three values: for LL, LL128 and Simple; or for one node, two nodes, and more."""


class Generation(IntEnum):
    """The generations of NVIDIA GPUs in NCCL, by compute capability: 7.x, 8.x, 9.x, and 10 and above."""

    VOLTA = 0
    AMPERE = 1
    HOPPER = 2
    BLACKWELL = 3


class NcclAlgorithm(StrEnum):
    """NCCL's algorithms for collectives, with their names in ``NCCL_ALGO``.

    The algorithm PAT is left out, because NCCL uses it only for groups with one GPU per node.
    """

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnetdirect"
    COLLNET_CHAIN = "collnetchain"
    NVLS = "nvls"
    NVLS_TREE = "nvlstree"


class NcclProtocol(IntEnum):
    """NCCL's protocols for collectives. The value of a member is its index in tuples with one entry per protocol."""

    LL = 0
    LL128 = 1
    SIMPLE = 2

    def __str__(self) -> str:
        return ("LL", "LL128", "Simple")[self]


_A = NcclAlgorithm

BASE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (6.8, 14.0, 8.4),
    _A.RING: (6.6, 14.0, 8.4),
    _A.COLLNET_DIRECT: (0.0, 0.0, 0.0),
    _A.COLLNET_CHAIN: (0.0, 0.0, 0.0),
    _A.NVLS: (0.0, 0.0, 0.0),
    _A.NVLS_TREE: (0.0, 0.0, 0.0),
}
"""Latency before the first step, in microseconds."""

INSIDE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (0.6, 1.25, 4.0),
    _A.RING: (0.6, 1.9, 3.4),
    _A.COLLNET_DIRECT: (0.0, 0.0, 3.7),
    _A.COLLNET_CHAIN: (0.0, 0.0, 2.8),
    _A.NVLS: (0.0, 0.0, 25.0),
    _A.NVLS_TREE: (0.0, 0.0, 25.0),
}
"""Latency of a step over NVLink, in microseconds."""

PCIE_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (1.0, 1.9, 4.0),
    _A.RING: (1.0, 2.5, 5.7),
    _A.COLLNET_DIRECT: (0.0, 0.0, 3.7),
    _A.COLLNET_CHAIN: (0.0, 0.0, 2.8),
    _A.NVLS: (0.0, 0.0, 0.0),
    _A.NVLS_TREE: (0.0, 0.0, 0.0),
}
"""Latency of a step over PCIe, in microseconds."""

NETWORK_US: Mapping[NcclAlgorithm, Triple] = {
    _A.TREE: (5.0, 8.5, 14.0),
    _A.RING: (2.7, 4.0, 14.0),
    _A.COLLNET_DIRECT: (0.0, 0.0, 31.0),
    _A.COLLNET_CHAIN: (0.0, 0.0, 30.0),
    _A.NVLS: (0.0, 0.0, 18.0),
    _A.NVLS_TREE: (0.0, 0.0, 14.0),
}
"""Latency of a step over the network, in microseconds."""

LL_GB_PER_S: tuple[Triple, ...] = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
"""Highest bandwidth of LL. Rows for one node are by the generation of the GPUs. Rows for two and for more nodes are by
the maker of the hosts' processors: Intel in the first row, AMD in the second."""

RING_LL128_GB_PER_S: tuple[Triple, ...] = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (73.4,) * 3)
TREE_LL128_GB_PER_S: tuple[Triple, ...] = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_GB_PER_S: tuple[Triple, ...] = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
TREE_SWITCHED_GB_PER_S: tuple[Triple, ...] = (*TREE_GB_PER_S[:2], (0.0, 57.7, 45.5), (0.0, 96.0, 43.1))
"""Highest bandwidth of one channel by generation, on one node, two nodes, and more: for rings and trees with LL128, for
trees, and for trees between nodes whose switches add."""

NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
"""Share of NVLink's bandwidth that NVLink SHARP reaches, by generation."""

TREE_SHARES: tuple[tuple[float, ...], ...] = (
    (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, *(0.7,) * 4, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, *(1.0,) * 4),
    (*(1.0,) * 5, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, *(0.5,) * 4, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""Measured share of their bandwidth that trees reach at sizes of 64 B, 128 B ... 256 MB, by protocol."""

SUSTAINED_SHARE = (0.8, 0.8, 0.824, 0.802)
"""Share of NVLink's nominal bandwidth that NCCL assumes, by generation: 20, 20, 20.6 and 40.1 of 25, 25, 25 and 50
GB/s."""

CHANNEL_GB_PER_S = (20.0, 20.0, 30.0, 45.0)
"""Bandwidth of a channel over NVLink inside a node, by generation: 12 channels of 20 GB/s on an A100, 12 of 30 on an
H100."""

MOST_CHANNELS = (32, 32, 16, 16)
"""Largest number of channels for which NCCL searches rings, by generation."""


_PORT_SHARE = 0.96
"""Share of a port's bandwidth that NCCL assumes: 24 of 25 GB/s, 48 of 50 (``speedArrayInter``)."""

_LEAST_NVLINK_GB_PER_S = 100.0
"""Smallest bandwidth of a GPU's NVLink. NVLink has 150 GB/s or more in one direction, PCIe has 63
(catalog/links.toml)."""

_LEAST_COPIED_GB_PER_S, _WIDE_GB_PER_S, _FEW_CHANNELS = 25.0, 50.0, 4
"""Bandwidth of a channel from which NCCL doubles the channels. From Hopper on, if there are more than a few channels,
only wide channels are doubled."""


def generation_of(accelerator: Accelerator) -> Generation:
    """Return NCCL's generation of an NVIDIA GPU, derived from the number formats and scales that the GPU supports."""
    if accelerator.applies_block_scales:
        return Generation.BLACKWELL
    if Fp8Recipe.BLOCKWISE in accelerator.fp8_recipes:
        return Generation.HOPPER
    return Generation.AMPERE if accelerator.bf16_flop_per_s else Generation.VOLTA


def wires_of(num_ranks: int, ranks_per_node: int, cluster: Cluster) -> Wires:
    """Return the channels and links that NCCL finds between the ranks of a group.

    Args:
        num_ranks: Number of ranks of the group, two or more.
        ranks_per_node: Number of the group's ranks on each node.
        cluster: Cluster of NVIDIA GPUs.
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
    """Return one channel per accelerator, which requests the accelerator's part of the bytes from the switches."""
    return Channels(count=count, inside_gb_per_s=inside, between_gb_per_s=between)


def _ports(ranks_per_node: int, cluster: Cluster) -> int:
    """Return the number of network ports of a group's ranks in a node: one each, unless accelerators share ports."""
    of_node = cluster.network.ports_per_node if cluster.network is not None else None
    per_rank = 1.0 if of_node is None else min(1.0, of_node / cluster.accelerators_per_node)
    return max(1, int(ranks_per_node * per_rank))


def _inside_node(total: float, generation: Generation) -> Channels:
    count = max(1, int(total / CHANNEL_GB_PER_S[generation]))
    return _doubled(Channels(count=count, inside_gb_per_s=total / count, between_gb_per_s=total / count), generation)


def _over_ports(inside: float, port: float, ports: int, generation: Generation) -> Channels:
    """Return one channel for each port. Links inside the node then have the bandwidth of the incoming data."""
    each = min(port, inside / ports)
    return _doubled(Channels(count=ports, inside_gb_per_s=each, between_gb_per_s=each), generation)


def _doubled(channels: Channels, generation: Generation) -> Channels:
    """Return twice as many channels of half the bandwidth, if NCCL duplicates them."""
    each, count = channels.inside_gb_per_s, channels.count
    many = generation >= Generation.HOPPER and each < _WIDE_GB_PER_S and count > _FEW_CHANNELS
    if each < _LEAST_COPIED_GB_PER_S or many:
        return channels
    doubled = min(2 * count, MOST_CHANNELS[generation])
    share = count / doubled
    return Channels(count=doubled, inside_gb_per_s=each * share, between_gb_per_s=channels.between_gb_per_s * share)


Collective: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter"]

_NETWORK_OVERHEAD_US = 1.0
"""Least time of a ring's step if the network is used, in microseconds; 2 on hosts with AMD processors
(``getNetOverhead``)."""

_PLATEAU_CHUNK_BYTES = 64
"""Number of bytes per channel and rank from which an all-reduce by a ring between nodes has its plateau latency."""

_SMALLEST, _LARGEST = 2**3, 2**34
"""Smallest and largest size in bytes for which choices are searched: one number, and the shards of a large model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """NCCL channels, that is parallel copies of a path, with the bandwidth of each inside nodes and between nodes."""

    count: int
    inside_gb_per_s: float
    between_gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """The channels and links that NCCL's topology search finds between the ranks of one group."""

    num_ranks: int
    num_nodes: int
    generation: Generation
    """Generation of the GPUs, such as Hopper."""
    has_nvlink: bool
    """True if NVLink joins GPUs of a node; otherwise PCIe does."""
    rings: Channels
    """Channels of the ring."""
    trees: Channels
    """Channels of trees and chains."""
    switched: Channels | None = None
    """Channels through the adding switches of a node (NVLink SHARP); None without such switches."""
    network_adds: bool = False
    """True if the network's switches add and NCCL is configured to use them (``NCCL_COLLNET_ENABLE``)."""

    @property
    def ranks_per_node(self) -> int:
        """The number of the group's ranks on each node, rounded down as in NCCL."""
        return self.num_ranks // self.num_nodes

    @property
    def size_row(self) -> int:
        """The index of this number of nodes in NCCL's bandwidth tables: 0 for one node, 1 for two nodes, 2 for more."""
        return min(self.num_nodes, 3) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A pair of algorithm and protocol, with the latency and bandwidth that NCCL expects of the pair for one group."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    latency_us: float
    gb_per_s: float
    """Bandwidth, counted in bytes of the collective and not in bytes that pass a link."""
    is_sum: bool
    plateau: float = 1.0
    plateau_from_bytes: int | None = None
    """Size in bytes from which the latency is multiplied by 1.4, or by 1.9 on Volta; None: it never is."""

    def seconds(self, num_bytes: float) -> float:
        """Return the seconds that NCCL expects for ``num_bytes`` bytes with this algorithm and protocol."""
        bandwidth, latency_us = self.gb_per_s, self.latency_us
        if self.algorithm is NcclAlgorithm.TREE and self.is_sum:
            shares, size = TREE_SHARES[self.protocol], int(num_bytes) >> 6
            power = size.bit_length() - 1
            bandwidth *= shares[power] if 0 <= power < len(shares) else 1.0
        if self.plateau_from_bytes is not None and num_bytes >= self.plateau_from_bytes:
            latency_us *= self.plateau
        return 1e-6 * (latency_us + num_bytes / (1000 * bandwidth))

    def __str__(self) -> str:
        return f"{self.algorithm} {self.protocol}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range of message sizes for which NCCL chooses one algorithm and protocol, up to the start of the next range."""

    from_bytes: int
    way: Way


def chosen(collective: Collective, num_bytes: float, wires: Wires) -> Way:
    """Return the algorithm and protocol that NCCL chooses for a collective of ``num_bytes`` bytes.

    If several pairs are equally fast, NCCL takes the first pair in its own order.

    Args:
        collective: Kind of the collective.
        num_bytes: Bytes of the message.
        wires: Channels and links between the ranks of the group.
    """
    return min(ways(collective, wires), key=lambda way: way.seconds(num_bytes))


def bands(collective: Collective, wires: Wires) -> tuple[Band, ...]:
    """Return the ranges of message sizes for which NCCL chooses one algorithm and protocol, the smallest sizes first.

    NCCL's choices are compared at sizes that are powers of two bytes.

    Args:
        collective: Kind of the collective.
        wires: Channels and links between the ranks of the group.
    """
    rated, found = ways(collective, wires), list[Band]()
    size = _SMALLEST
    while size <= _LARGEST:
        way = min(rated, key=lambda one: one.seconds(size))
        if not found or found[-1].way is not way:
            found.append(Band(from_bytes=size, way=way))
        size *= 2
    return tuple(found)


def ways(collective: Collective, wires: Wires) -> tuple[Way, ...]:
    """Return every algorithm and protocol that NCCL may choose for a collective, in NCCL's own order.

    Args:
        collective: Kind of the collective.
        wires: Channels and links between the ranks of the group.

    Raises:
        ValueError: There is only one rank.
    """
    if wires.num_ranks < 2:
        raise ValueError("a collective needs two ranks")
    return tuple(
        _way(collective, algorithm, protocol, wires)
        for algorithm in NcclAlgorithm
        for protocol in _protocols(algorithm, wires)
        if _is_offered(collective, algorithm, wires)
    )


# ---------------------------------------------------------------- what is offered
def _is_offered(collective: Collective, algorithm: NcclAlgorithm, wires: Wires) -> bool:
    alone = wires.num_nodes == 1
    sums = collective == "all_reduce"
    match algorithm:
        case NcclAlgorithm.RING:
            return True
        case NcclAlgorithm.TREE:
            return sums
        case NcclAlgorithm.COLLNET_DIRECT:
            return sums and not alone and wires.network_adds and wires.has_nvlink
        case NcclAlgorithm.COLLNET_CHAIN:
            return sums and not alone and wires.network_adds
        case NcclAlgorithm.NVLS:
            return _switches(wires) and (alone or (sums and wires.network_adds))
        case NcclAlgorithm.NVLS_TREE:
            return _switches(wires) and sums and not alone


def _switches(wires: Wires) -> bool:
    return wires.switched is not None and wires.switched.count > 1


def _protocols(algorithm: NcclAlgorithm, wires: Wires) -> Iterator[NcclProtocol]:
    if algorithm in (NcclAlgorithm.TREE, NcclAlgorithm.RING):
        yield NcclProtocol.LL
        if wires.has_nvlink:  # else 128 bytes may arrive in parts
            yield NcclProtocol.LL128
    yield NcclProtocol.SIMPLE


# ---------------------------------------------------------------- how it is rated
def _way(collective: Collective, algorithm: NcclAlgorithm, protocol: NcclProtocol, wires: Wires) -> Way:
    steps = (wires.num_ranks - 1) * (2 if collective == "all_reduce" else 1)
    passed = algorithm in (NcclAlgorithm.RING, NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE)
    ratio = wires.num_ranks / steps if passed else 0.5
    if collective != "all_reduce" and algorithm != NcclAlgorithm.RING:
        ratio = 1.0
    late = algorithm is NcclAlgorithm.RING and protocol is NcclProtocol.SIMPLE and wires.num_nodes > 1
    from_bytes = _PLATEAU_CHUNK_BYTES * 2 * wires.rings.count * wires.num_ranks  # NCCL runs each ring twice
    return Way(
        algorithm=algorithm,
        protocol=protocol,
        latency_us=_latency_us(steps, algorithm, protocol, wires),
        gb_per_s=ratio * _bus_gb_per_s(collective, algorithm, protocol, wires),
        is_sum=collective == "all_reduce",
        plateau=1.9 if wires.generation is Generation.VOLTA else 1.4,
        plateau_from_bytes=from_bytes if late and collective == "all_reduce" else None,
    )


def _bus_gb_per_s(collective: Collective, algorithm: NcclAlgorithm, protocol: NcclProtocol, wires: Wires) -> float:
    match algorithm:
        case NcclAlgorithm.RING:
            return _ring_gb_per_s(protocol, wires)
        case NcclAlgorithm.TREE:
            return _tree_gb_per_s(protocol, wires)
        case NcclAlgorithm.COLLNET_DIRECT | NcclAlgorithm.COLLNET_CHAIN:
            return _collnet_gb_per_s(algorithm, wires)
        case NcclAlgorithm.NVLS | NcclAlgorithm.NVLS_TREE:
            return _switched_gb_per_s(collective, algorithm, wires)


def _ring_gb_per_s(protocol: NcclProtocol, wires: Wires) -> float:
    whole = wires.rings.count * _of_channel(wires.rings, wires)
    match protocol:
        case NcclProtocol.LL:
            return min(_ll_gb_per_s(wires), 0.5 * whole)
        case NcclProtocol.LL128:
            return min(0.92 * whole, wires.rings.count * RING_LL128_GB_PER_S[wires.generation][wires.size_row])
        case NcclProtocol.SIMPLE:
            return whole


def _tree_gb_per_s(protocol: NcclProtocol, wires: Wires) -> float:
    count, row = wires.trees.count, wires.size_row
    whole = min(0.92 * count * _of_channel(wires.trees, wires), count * TREE_GB_PER_S[wires.generation][row])
    match protocol:
        case NcclProtocol.LL:
            return min(whole / 3.8, _ll_gb_per_s(wires))
        case NcclProtocol.LL128:
            flagged = whole * (7 / 9 if wires.num_nodes == 1 else 120 / 128)
            return min(flagged, count * TREE_LL128_GB_PER_S[wires.generation][row])
        case NcclProtocol.SIMPLE:
            return whole


def _collnet_gb_per_s(algorithm: NcclAlgorithm, wires: Wires) -> float:
    whole = wires.trees.count * wires.trees.inside_gb_per_s
    if algorithm is NcclAlgorithm.COLLNET_CHAIN:
        return whole
    factor = wires.num_ranks / wires.num_nodes / wires.trees.count  # GPUs of a port
    whole /= factor - (factor - 1) / 2
    return whole * (0.85 if wires.generation >= Generation.HOPPER else 1.0)


def _switched_gb_per_s(collective: Collective, algorithm: NcclAlgorithm, wires: Wires) -> float:
    """Return the bandwidth of switches that add.

    One channel of a node is lost; an all-reduce uses both directions.
    """
    switched = wires.switched
    assert switched is not None
    per_node = wires.num_ranks / wires.num_nodes
    share = NVLS_EFFICIENCY[wires.generation] * (switched.count - 1) / switched.count
    inside = switched.inside_gb_per_s * share * (2 if collective == "all_reduce" else (per_node - 1) / per_node)
    is_tree = algorithm is NcclAlgorithm.NVLS_TREE
    between = switched.between_gb_per_s * (2 if is_tree and wires.num_nodes <= 2 else 1)
    at_most = TREE_SWITCHED_GB_PER_S[wires.generation][wires.size_row] if is_tree else between
    return switched.count * min(inside, between, at_most)


def _of_channel(channels: Channels, wires: Wires) -> float:
    """Return the bandwidth of a tree's channel. On two nodes, the path inside a node limits it."""
    return channels.inside_gb_per_s if wires.num_nodes <= 2 else channels.between_gb_per_s


def _ll_gb_per_s(wires: Wires) -> float:
    """Return the bandwidth of LL.

    On one node the GPUs limit it; on several nodes the hosts' processors do (Intel's here).
    """
    return LL_GB_PER_S[wires.generation if wires.num_nodes == 1 else 0][wires.size_row]


def _latency_us(steps: int, algorithm: NcclAlgorithm, protocol: NcclProtocol, wires: Wires) -> float:
    inside = (INSIDE_US if wires.has_nvlink else PCIE_US)[algorithm][protocol]
    lone = wires.num_ranks == wires.num_nodes
    between = NETWORK_US[NcclAlgorithm.TREE if lone else algorithm][protocol]
    base, others = BASE_US[algorithm][protocol], wires.ranks_per_node - 1
    height = wires.num_nodes.bit_length() - 1
    match algorithm:
        case NcclAlgorithm.RING:
            return base + _ring_steps_us(steps, inside, between, protocol, wires)
        case NcclAlgorithm.TREE:
            return base + 2 * (others * inside + height * between)
        case NcclAlgorithm.COLLNET_DIRECT:
            return base + 2 * (min(1, others) * inside + 0.4 * others) + between
        case NcclAlgorithm.COLLNET_CHAIN:
            return base + 2 * others * inside + between
        case NcclAlgorithm.NVLS:
            return inside + (between if wires.num_nodes > 1 else 0.0)
        case NcclAlgorithm.NVLS_TREE:
            return base + inside + 2 * height * between


def _ring_steps_us(steps: int, inside: float, between: float, protocol: NcclProtocol, wires: Wires) -> float:
    if wires.num_nodes == 1:
        return steps * inside
    least = _NETWORK_OVERHEAD_US * (3 if protocol is NcclProtocol.SIMPLE else 1)
    outward = steps // (wires.num_ranks - 1) * (wires.num_nodes - 1)
    return (steps - outward) * max(inside, least) + outward * between
