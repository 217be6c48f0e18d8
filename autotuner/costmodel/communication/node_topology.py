"""Slowdown of collectives by PCIe and sockets inside a node.

All groups of an axis communicate at the same time, so that groups in one node share the uplinks of PCIe switches and
the link between sockets. The paths of messages are counted once for each arrangement of groups in a node. There are few
arrangements, and columns of layouts look up the results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import TypeAlias

import numpy as np

from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, Integers
from autotuner.core.network import PathKind, Wiring

PCIE_EFFICIENCY = 0.8
"""Share of the rate that long messages over PCIe reach. It is the default of links for which no collectives were
published."""

PCIE_STEP_S = 5.7e-6
"""Latency of one step over PCIe: NCCL 2.28, src/graph/tuning.cc, hardware latency of ring and Simple (``pcie4`` in
links.toml)."""

_KINDS = tuple(PathKind)

_Edge: TypeAlias = tuple[int, int, float]
"""Two accelerators, and the bytes that pass from the first to the second, relative to the bytes that one rank sends
over NVLink."""

_Resource: TypeAlias = tuple[str, int, int]
"""A link in one direction, by its kind and its number."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WiredNode:
    """The slowdown and delay of traffic inside nodes whose accelerators are not all joined by NVLink, per layout.

    The slowdown is relative to the cluster's link inside nodes.
    """

    ring_slowdown: Floats
    """Time of a byte around a ring inside a node, divided by the time over the cluster's link inside nodes."""
    pair_slowdown: Floats
    """Slowdown, as in ``ring_slowdown``, of traffic from every rank of a group to every other."""
    delay_s: Floats
    """Additional latency of a step inside a node."""
    limiting: Integers
    """Index in ``PathKind`` of the longest path between neighbours of a ring."""


def wired_node(ranks_inside: Integers, stride: Integers, cluster: Cluster) -> WiredNode | None:
    """Return the slowdown of collectives inside a node whose accelerators communicate over PCIe or CPU sockets.

    Args:
        ranks_inside: Number of ranks of a group that share a node.
        stride: Difference between the numbers of neighbouring ranks of the group.
        cluster: Cluster with the wiring of its nodes.

    Returns:
        None if the wiring is not described, or if NVLink joins all accelerators of a node.
    """
    wiring, size = cluster.wiring, cluster.accelerators_per_node
    if wiring is None or wiring.is_joined_by_nvlink(size):
        return None
    apart = np.clip(stride, 1, size)
    inside = np.clip(ranks_inside, 1, -(-size // apart))
    ways, rows = np.unique(np.stack([inside, apart]), axis=1, return_inverse=True)
    rates = _Rates.of(cluster, wiring)
    found = np.array([_times(wiring, rates, size, int(ranks), int(steps)) for ranks, steps in ways.T])
    ring, pair, delay_s, limiting = found.reshape(-1, 4)[rows.reshape(-1)].T  # there may be no rows
    return WiredNode(ring_slowdown=ring, pair_slowdown=pair, delay_s=delay_s, limiting=limiting.astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Seconds per byte of the link inside nodes, of PCIe and between sockets, and the extra latency of a PCIe step."""

    link_s_per_byte: float
    pcie_s_per_byte: float
    socket_s_per_byte: float
    pcie_delay_s: float

    @classmethod
    def of(cls, cluster: Cluster, wiring: Wiring) -> _Rates:
        link = cluster.intra_node_link
        pcie = wiring.pcie_bandwidth_bytes_per_s or cluster.accelerator.host_bandwidth_bytes_per_s
        return cls(
            link_s_per_byte=1 / (link.efficiency * link.bandwidth_bytes_per_s),
            pcie_s_per_byte=1 / (PCIE_EFFICIENCY * pcie),
            socket_s_per_byte=1 / wiring.socket_bandwidth_bytes_per_s,  # NCCL's rates are reached rates, not peak rates
            pcie_delay_s=max(0.0, PCIE_STEP_S - link.latency_s),
        )


@cache
def _times(wiring: Wiring, rates: _Rates, size: int, num_ranks: int, stride: int) -> tuple[float, float, float, int]:
    """Return the slowdown of rings and of pairs, the delay of a step, and the index of the longest path.

    The index is that of ``PathKind``.
    """
    groups = list(_groups(size, num_ranks, stride))
    ring = [edge for group in groups for edge in _ring_edges(wiring, group)]
    pairs = [edge for group in groups for edge in _pair_edges(group)]
    limiting = max((_KINDS.index(wiring.path(one, other)) for one, other, _ in ring), default=0)
    return (
        _slowdown(wiring, rates, ring),
        _slowdown(wiring, rates, pairs),
        rates.pcie_delay_s if limiting else 0.0,
        limiting,
    )


def _groups(size: int, num_ranks: int, stride: int) -> Iterator[list[int]]:
    """Yield the groups of an axis that lie in one node."""
    for first in range(0, size, num_ranks * stride):
        for offset in range(first, min(first + stride, size)):
            if len(group := list(range(offset, min(first + num_ranks * stride, size), stride))) > 1:
                yield group


def _ring_edges(wiring: Wiring, group: list[int]) -> Iterator[_Edge]:
    ring = wiring.in_ring_order(group)
    for one, other in (*pairwise(ring), (ring[-1], ring[0])):
        yield one, other, 1.0


def _pair_edges(group: list[int]) -> Iterator[_Edge]:
    for one, other in permutations(group, 2):
        yield one, other, 1 / (len(group) - 1)


def _slowdown(wiring: Wiring, rates: _Rates, edges: Iterable[_Edge]) -> float:
    """Return the time of the busiest link divided by the time over the link inside a node, at least 1."""
    loads: defaultdict[_Resource, float] = defaultdict(float)
    for one, other, share in edges:
        for resource in _resources(wiring, one, other):
            loads[resource] += share
    per_byte = {"pcie": rates.pcie_s_per_byte, "socket": rates.socket_s_per_byte}
    return max(1.0, _fullest_s(loads, per_byte) / rates.link_s_per_byte)


def _fullest_s(loads: Mapping[_Resource, float], per_byte: Mapping[str, float]) -> float:
    return max((load * per_byte[kind] for (kind, _, _), load in loads.items()), default=0.0)


def _resources(wiring: Wiring, one: int, other: int) -> Iterator[_Resource]:
    """Yield the links, in one direction, that a message without NVLink passes.

    Numbers below 0 mean switches.
    """
    kind = wiring.path(one, other)
    if kind is PathKind.NVLINK:
        return
    yield "pcie", one, 0
    yield "pcie", other, 1
    if kind is PathKind.PCIE_SWITCH:
        return
    for accelerator, direction in ((one, 0), (other, 1)):
        if (switch := _place(wiring.switches, accelerator)) is not None:
            yield "pcie", -1 - switch, direction
    if kind is PathKind.SOCKETS:
        yield "socket", _place(wiring.sockets, one) or 0, _place(wiring.sockets, other) or 0


def _place(groups: tuple[tuple[int, ...], ...], accelerator: int) -> int | None:
    return next((place for place, group in enumerate(groups) if accelerator in group), None)
