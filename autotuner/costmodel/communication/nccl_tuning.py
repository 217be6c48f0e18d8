"""NCCL's tuning model: which algorithm and protocol it takes for a collective of some size among some ranks.

NCCL times each algorithm with each protocol by a latency and a bandwidth, and takes the least; this is that arithmetic,
of release 2.28.3 (src/graph/tuning.cc: ``ncclTopoTuneModel``, ``ncclTopoGetAlgoTime``). It is what NCCL expects of
itself, and no measurement: predictions follow fitted links (``collectives``).

Left out is what no description of a cluster says: gathers that the network's switches help with, and hosts whose
processors are not Intel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from autotuner.costmodel.communication.nccl_tables import (
    BASE_US,
    INSIDE_US,
    LL_GB_PER_S,
    NETWORK_US,
    NVLS_EFFICIENCY,
    PCIE_US,
    RING_LL128_GB_PER_S,
    TREE_GB_PER_S,
    TREE_LL128_GB_PER_S,
    TREE_SHARES,
    TREE_SWITCHED_GB_PER_S,
    Generation,
    NcclAlgorithm,
    NcclProtocol,
)

Collective: TypeAlias = Literal["all_reduce", "all_gather", "reduce_scatter"]

_NETWORK_OVERHEAD_US = 1.0
"""A step of a ring takes at least so long to post beside a network; 2 on hosts of AMD (``getNetOverhead``)."""

_PLATEAU_CHUNK_BYTES = 64
"""Bytes per channel and rank from which an all-reduce's ring between nodes runs on its plateau."""

_SMALLEST, _LARGEST = 2**3, 2**34
"""Sizes that bands are looked for between, in bytes: a number, and what a large model's shards have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """Copies of an algorithm's path that work side by side, in GB/s each: inside nodes, and between them."""

    count: int
    inside_gb_per_s: float
    between_gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """A group of ranks as NCCL's search of the topology leaves it.

    Attributes:
        generation: Of the GPUs.
        has_nvlink: Between GPUs of a node; else PCIe.
        rings: Of the ring.
        trees: Of trees and chains.
        switched: Of the switches of a node that add (NVLink SHARP); None without them.
        network_adds: The network's switches add, and NCCL is told so (``NCCL_COLLNET_ENABLE``).
    """

    num_ranks: int
    num_nodes: int
    generation: Generation
    has_nvlink: bool
    rings: Channels
    trees: Channels
    switched: Channels | None = None
    network_adds: bool = False

    @property
    def ranks_per_node(self) -> int:
        """Of the group, rounded down as NCCL does."""
        return self.num_ranks // self.num_nodes

    @property
    def size_row(self) -> int:
        """The place in a triple of one node, two, or more."""
        return min(self.num_nodes, 3) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An algorithm with a protocol, as NCCL rates it for one collective of one group.

    Attributes:
        gb_per_s: Of the collective's bytes, not of those that pass a link.
        plateau_from_bytes: Size from which the latency counts 1.4 times, 1.9 times on Volta; None: it never does.
    """

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    latency_us: float
    gb_per_s: float
    is_sum: bool
    plateau: float = 1.0
    plateau_from_bytes: int | None = None

    def seconds(self, num_bytes: float) -> float:
        """What NCCL expects a collective of that size to take."""
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
    """Sizes for which NCCL takes one way: from one, up to the next band's."""

    from_bytes: int
    way: Way


def chosen(collective: Collective, num_bytes: float, wires: Wires) -> Way:
    """What NCCL takes for that size; the first of equals in its own order."""
    return min(ways(collective, wires), key=lambda way: way.seconds(num_bytes))


def bands(collective: Collective, wires: Wires) -> tuple[Band, ...]:
    """The way of every size, at powers of two, those next to each other with one way joined."""
    rated, found = ways(collective, wires), list[Band]()
    size = _SMALLEST
    while size <= _LARGEST:
        way = min(rated, key=lambda one: one.seconds(size))
        if not found or found[-1].way is not way:
            found.append(Band(from_bytes=size, way=way))
        size *= 2
    return tuple(found)


def ways(collective: Collective, wires: Wires) -> tuple[Way, ...]:
    """Every way that NCCL may take, in its order of algorithms and protocols.

    Raises:
        ValueError: One rank has nobody to communicate with.
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
    from_bytes = _PLATEAU_CHUNK_BYTES * 2 * wires.rings.count * wires.num_ranks  # each ring is run twice
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
    """One of a node's channels is not for its own bytes; an all-reduce passes bytes both ways at once."""
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
    """On two nodes a tree's ways inside and between are one way for each half."""
    return channels.inside_gb_per_s if wires.num_nodes <= 2 else channels.between_gb_per_s


def _ll_gb_per_s(wires: Wires) -> float:
    """On one node it is the GPUs that decide, beyond it the processors of the hosts, Intel's here."""
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
