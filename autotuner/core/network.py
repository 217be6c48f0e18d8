"""Network: switches between nodes, and how the devices of one node are wired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import Literal, Self

from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, FromOne, Positive, Seconds, divisors, value

Groups = tuple[tuple[int, ...], ...]
"""Accelerators of a node, numbered from 0, group by group; none is in two groups."""

PortPath = Literal["pcie_switch", "host_bridge", "numa_node", "sockets"]
"""What lies between a port and the accelerators nearest to it: PCIe switches alone, a host bridge, several of them in
one NUMA node, or two sockets. ``nvidia-smi topo -m`` calls them PIX or PXB, PHB, NODE and SYS."""


class PathKind(Enum):
    """What two accelerators of a node reach each other over, the shortest way first."""

    NVLINK = "nvlink"
    PCIE_SWITCH = "pcie_switch"
    SOCKET = "socket"
    SOCKETS = "sockets"

    @property
    def in_words(self) -> str:
        """What a sentence calls it."""
        return {
            PathKind.NVLINK: "NVLink",
            PathKind.PCIE_SWITCH: "one PCIe switch",
            PathKind.SOCKET: "the root of one socket's PCIe",
            PathKind.SOCKETS: "the link between sockets",
        }[self]


@value
class Port:
    """One port of a node to the network."""

    name: str
    """What the node calls it: ``mlx5_0``."""
    nearest: tuple[int, ...] = ()
    """Accelerators that no other port is nearer to; empty: none in particular."""
    path: PortPath = "pcie_switch"
    """What lies between it and these."""
    bandwidth_bytes_per_s: Positive | None = None
    """One direction, as the node says; None: it does not say."""


@value
class Wiring:
    """What joins the accelerators of a node, all nodes alike."""

    name: str
    """What answers call it."""
    nvlink_groups: Groups = ()
    """Accelerators that NVLink (or Infinity Fabric) joins, directly or through each other; one that is in no group
    reaches others over PCIe alone."""
    switches: Groups = ()
    """Accelerators below one PCIe switch, which share its way up; one that is in no group has its own."""
    sockets: Groups = ()
    """Accelerators of one socket or NUMA node; empty: there is one."""
    ports: tuple[Port, ...] = ()
    """To the network, in the order of their rails; empty: not described."""
    pcie_bandwidth_bytes_per_s: Positive | None = None
    """Of an accelerator's PCIe, and of a switch's way up, one direction; None: as between accelerator and host."""
    socket_bandwidth_bytes_per_s: Positive = 16e9  # AMD_BW of NCCL 2.22, src/graph/topo.h; Intel's are 10, 22 and 40
    """Between two sockets for all that cross at once, one direction."""
    source: str = ""
    """Where it was read: a file's kind, a person."""

    def __post_init__(self) -> None:
        for field in ("nvlink_groups", "switches", "sockets"):
            _require_apart(field, getattr(self, field))

    def require_accelerators(self, num_accelerators: int) -> None:
        """Return if it names none but the first so many.

        Raises:
            InvalidInput: It names one that a node does not have.
        """
        for field, groups in (*self._groups(), ("ports", tuple(port.nearest for port in self.ports))):
            for accelerator in (each for group in groups for each in group):
                if not 0 <= accelerator < num_accelerators:
                    rule = f"must be one of a node's {num_accelerators} accelerators, which are numbered from 0"
                    raise InvalidInput(f"wiring.{field}", accelerator, rule, num_accelerators - 1)

    def of_first(self, num_accelerators: int) -> Self:
        """What is left of it in a node that has the first so many accelerators alone."""
        nvlink_groups, switches, sockets = (tuple(_kept(groups, num_accelerators)) for _, groups in self._groups())
        near = [tuple(each for each in port.nearest if each < num_accelerators) for port in self.ports]
        ports = tuple(replace(port, nearest=own) for port, own in zip(self.ports, near, strict=True))
        return replace(self, nvlink_groups=nvlink_groups, switches=switches, sockets=sockets, ports=ports)

    def path(self, one: int, other: int) -> PathKind:
        """The shortest way between two accelerators."""
        if _share(self.nvlink_groups, one, other):
            return PathKind.NVLINK
        if _share(self.switches, one, other):
            return PathKind.PCIE_SWITCH
        return PathKind.SOCKET if not self.sockets or _share(self.sockets, one, other) else PathKind.SOCKETS

    def limiting_path(self, accelerators: Iterable[int]) -> PathKind:
        """The longest way between neighbours, where a ring goes through them as ``in_ring_order`` has them."""
        ring = self.in_ring_order(accelerators)
        kinds = list(PathKind)
        joins = [*pairwise(ring), (ring[-1], ring[0])] if len(ring) > 1 else []
        return max((self.path(*pair) for pair in joins), key=kinds.index, default=PathKind.NVLINK)

    def in_ring_order(self, accelerators: Iterable[int]) -> list[int]:
        """The accelerators as a ring visits them: socket by socket, within one switch by switch, then along NVLink.

        NCCL looks for the ring whose slowest link is fastest; where each level's groups lie within those of the next,
        this is one.
        """
        levels = (self.sockets, self.switches, self.nvlink_groups)
        if len(self.nvlink_groups) == 1:  # all that count are joined by it
            levels = (self.nvlink_groups, self.sockets, self.switches)
        return sorted(accelerators, key=lambda each: (*(_number(groups, each) for groups in levels), each))

    def is_joined_by_nvlink(self, num_accelerators: int) -> bool:
        """Whether NVLink joins all of so many."""
        return num_accelerators < 2 or any(set(range(num_accelerators)) <= set(group) for group in self.nvlink_groups)

    def nearest_ports(self, accelerator: int) -> list[Port]:
        """The ports that no other port is nearer to that accelerator than."""
        return [port for port in self.ports if accelerator in port.nearest]

    def _groups(self) -> tuple[tuple[str, Groups], ...]:
        return ("nvlink_groups", self.nvlink_groups), ("switches", self.switches), ("sockets", self.sockets)


def _require_apart(field: str, groups: Groups) -> None:
    seen: set[int] = set()
    for accelerator in (each for group in groups for each in group):
        if accelerator in seen or accelerator < 0:
            rule = "must be 0 or more" if accelerator < 0 else "must be in one group alone, and once"
            raise InvalidInput(field, accelerator, rule)
        seen.add(accelerator)


def _kept(groups: Groups, num_accelerators: int) -> Iterator[tuple[int, ...]]:
    for group in groups:
        if left := tuple(each for each in group if each < num_accelerators):
            yield left


def _share(groups: Groups, one: int, other: int) -> bool:
    return any(one in group and other in group for group in groups)


def _number(groups: Groups, accelerator: int) -> int:
    """Which group it is in, by the least accelerator of that; its own number in none."""
    return next((min(group) for group in groups if accelerator in group), accelerator)


@value
class Tier:
    """Switches of one height, all alike."""

    name: str
    """What answers call it: ``leaf``, ``spine``."""
    nodes_per_switch: Count
    """Nodes below one of them, those below the tiers under it counted in."""
    oversubscription: FromOne = 1.0
    """What these nodes can send in all over what the switch passes up; 1.0 is non-blocking. Of the highest tier nothing
    goes up."""
    latency_s: Seconds = 0.0
    """What a message takes longer that turns around here than one that turns around below, one way."""


@value
class Network:
    """What joins the nodes of a cluster.

    Nodes are numbered so that those below one switch follow each other.
    """

    name: str
    """What answers call it."""
    tiers: tuple[Tier, ...] = ()
    """From the switches that nodes are plugged into upwards; whatever is above the last is non-blocking, and joins all.
    Empty: one switch, or a torus."""
    num_rails: Count = 1
    """Ports of a node that each have lowest switches of their own, which join the same port of other nodes; accelerator
    i of a node of g uses rail i * num_rails // g. 1: all ports of a node end in one switch."""
    torus: tuple[int, ...] = ()
    """Nodes along each dimension, the first one's neighbours numbered next to each other; empty: switches."""
    ports_per_node: Count | None = None
    """Ports that a node's accelerators share; None: one each."""
    adds: bool = False
    """Its switches add what passes them (InfiniBand SHARP)."""
    adapts_routes: bool = True
    """Its switches spread packets over all ways (adaptive routing): no two flows meet by chance."""
    source: str = ""
    """Where it was read: a file's kind, a preset, a person."""

    def __post_init__(self) -> None:
        if self.tiers and self.torus:
            raise InvalidInput("torus", list(self.torus), "must be left out where there are tiers of switches", "[]")
        if any(length < 2 for length in self.torus):
            raise InvalidInput("torus", list(self.torus), "must have at least 2 nodes along each dimension")
        sizes = [tier.nodes_per_switch for tier in self.tiers]
        for below, above in pairwise(sizes):
            if above % below or above == below:
                rule = f"must be a multiple of the {below} nodes below a switch of the tier under it"
                raise InvalidInput("nodes_per_switch", above, rule, below * max(2, above // below))

    def require_nodes(self, num_nodes: int) -> None:
        """Return if it joins so many nodes.

        Raises:
            InvalidInput: A torus has fewer or more.
        """
        if self.torus and math.prod(self.torus) != num_nodes:
            rule = f"a torus of {' x '.join(map(str, self.torus))} joins {math.prod(self.torus)} nodes"
            raise InvalidInput("num_nodes", num_nodes, rule, math.prod(self.torus))

    def resized(self, num_nodes: int) -> Self:
        """What joins another number of nodes: such switches, or a torus of no more dimensions."""
        if not self.torus or math.prod(self.torus) == num_nodes:
            return self
        dimensions = range(len(self.torus), 0, -1)
        found = next((lengths for number in dimensions if (lengths := torus_lengths(num_nodes, number))), ())
        return replace(self, torus=found)


def torus_lengths(num_nodes: int, num_dimensions: int) -> tuple[int, ...]:
    """The lengths, as equal as there are, of a torus of so many nodes; empty where there is none."""
    if num_dimensions == 1:
        return (num_nodes,) if num_nodes > 1 else ()
    fitting = (length for length in divisors(num_nodes) if 1 < length <= round(num_nodes ** (1 / num_dimensions)))
    splits = ((length, *torus_lengths(num_nodes // length, num_dimensions - 1)) for length in fitting)
    whole = (lengths for lengths in splits if len(lengths) == num_dimensions)
    return min(whole, key=lambda lengths: (max(lengths), sum(lengths)), default=())
