"""Network: the switches between nodes, and the wiring of the devices inside one node."""

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
"""Groups of the accelerators of a node, which are numbered from 0. Each accelerator is in one group at most."""

PortPath = Literal["pcie_switch", "host_bridge", "numa_node", "sockets"]
"""Hardware between a port and the accelerators nearest to it: PCIe switches alone, a host bridge, several host bridges
in one NUMA node, or two sockets. ``nvidia-smi topo -m`` calls them PIX or PXB, PHB, NODE and SYS."""


class PathKind(Enum):
    """The kinds of connections between two accelerators of a node, the shortest first."""

    NVLINK = "nvlink"
    PCIE_SWITCH = "pcie_switch"
    SOCKET = "socket"
    SOCKETS = "sockets"

    @property
    def in_words(self) -> str:
        """The name of the connection in a sentence: ``NVLink``, ``one PCIe switch``."""
        return {
            PathKind.NVLINK: "NVLink",
            PathKind.PCIE_SWITCH: "one PCIe switch",
            PathKind.SOCKET: "the root of one socket's PCIe",
            PathKind.SOCKETS: "the link between sockets",
        }[self]


@value
class Port:
    """A network port of a node: its bandwidth, and the accelerators that are nearest to it."""

    name: str
    """Name of the port on the node: ``mlx5_0``."""
    nearest: tuple[int, ...] = ()
    """Accelerators that are nearer to this port than to any other; empty: none in particular."""
    path: PortPath = "pcie_switch"
    """Hardware between the port and these accelerators."""
    bandwidth_bytes_per_s: Positive | None = None
    """Bandwidth of the port in one direction, as the node states it; None if the node does not state it."""


@value
class Wiring:
    """The connections between the accelerators inside a node. All nodes of a cluster have the same wiring."""

    name: str
    """Name of the wiring in answers."""
    nvlink_groups: Groups = ()
    """Groups of accelerators that NVLink (or Infinity Fabric) joins, directly or through other accelerators. An
    accelerator outside these groups reaches others over PCIe alone."""
    switches: Groups = ()
    """Groups of accelerators below one PCIe switch, which share its uplink. An accelerator outside these groups has its
    own uplink."""
    sockets: Groups = ()
    """Groups of accelerators that belong to one socket or NUMA node; empty: there is one socket."""
    ports: tuple[Port, ...] = ()
    """Network ports of the node, in the order of their rails; empty: not described."""
    pcie_bandwidth_bytes_per_s: Positive | None = None
    """Bandwidth of an accelerator's PCIe link and of a PCIe switch's uplink, in one direction; None: the bandwidth
    between accelerator and host."""
    socket_bandwidth_bytes_per_s: Positive = 16e9  # AMD_BW of NCCL 2.22, src/graph/topo.h; Intel's are 10, 22 and 40
    """Bandwidth between two sockets in one direction, shared by all transfers between them."""
    source: str = ""
    """Origin of the description: a kind of file, or a person."""

    def __post_init__(self) -> None:
        for field in ("nvlink_groups", "switches", "sockets"):
            _require_apart(field, getattr(self, field))

    def require_accelerators(self, num_accelerators: int) -> None:
        """Check that every accelerator that the wiring names exists in a node with this number of accelerators.

        Raises:
            InvalidInput: The wiring names an accelerator that the node does not have.
        """
        for field, groups in (*self._groups(), ("ports", tuple(port.nearest for port in self.ports))):
            for accelerator in (each for group in groups for each in group):
                if not 0 <= accelerator < num_accelerators:
                    rule = f"must be one of a node's {num_accelerators} accelerators, which are numbered from 0"
                    raise InvalidInput(
                        f"wiring.{field}", accelerator, rule, 0 if accelerator < 0 else num_accelerators - 1
                    )

    def of_first(self, num_accelerators: int) -> Self:
        """Return the wiring of a node reduced to its first ``num_accelerators`` accelerators."""
        nvlink_groups, switches, sockets = (tuple(_kept(groups, num_accelerators)) for _, groups in self._groups())
        near = [tuple(each for each in port.nearest if each < num_accelerators) for port in self.ports]
        ports = tuple(replace(port, nearest=own) for port, own in zip(self.ports, near, strict=True))
        return replace(self, nvlink_groups=nvlink_groups, switches=switches, sockets=sockets, ports=ports)

    def path(self, one: int, other: int) -> PathKind:
        """Return the kind of the shortest path between two accelerators of the node."""
        if _share(self.nvlink_groups, one, other):
            return PathKind.NVLINK
        if _share(self.switches, one, other):
            return PathKind.PCIE_SWITCH
        return PathKind.SOCKET if not self.sockets or _share(self.sockets, one, other) else PathKind.SOCKETS

    def limiting_path(self, accelerators: Iterable[int]) -> PathKind:
        """Return the kind of the longest path between neighbours in a ring of these accelerators.

        The ring has the order that ``in_ring_order`` returns.
        """
        ring = self.in_ring_order(accelerators)
        kinds = list(PathKind)
        joins = [*pairwise(ring), (ring[-1], ring[0])] if len(ring) > 1 else []
        return max((self.path(*pair) for pair in joins), key=kinds.index, default=PathKind.NVLINK)

    def in_ring_order(self, accelerators: Iterable[int]) -> list[int]:
        """Return the accelerators in the order of a fast ring: by socket, then by PCIe switch, then along NVLink.

        NCCL looks for the ring whose slowest link is as fast as possible. The returned order is such a ring if each
        PCIe switch belongs to one socket, and each NVLink group to one switch.
        """
        levels = (self.sockets, self.switches, self.nvlink_groups)
        if len(self.nvlink_groups) == 1:  # NVLink joins all of these accelerators
            levels = (self.nvlink_groups, self.sockets, self.switches)
        return sorted(accelerators, key=lambda each: (*(_number(groups, each) for groups in levels), each))

    def is_joined_by_nvlink(self, num_accelerators: int) -> bool:
        """Return True if NVLink joins the first ``num_accelerators`` accelerators of a node with each other."""
        return num_accelerators < 2 or any(set(range(num_accelerators)) <= set(group) for group in self.nvlink_groups)

    def nearest_ports(self, accelerator: int) -> list[Port]:
        """Return the network ports that are nearest to this accelerator."""
        return [port for port in self.ports if accelerator in port.nearest]

    def _groups(self) -> tuple[tuple[str, Groups], ...]:
        return ("nvlink_groups", self.nvlink_groups), ("switches", self.switches), ("sockets", self.sockets)


def _require_apart(field: str, groups: Groups) -> None:
    seen: set[int] = set()
    for accelerator in (each for group in groups for each in group):
        if accelerator in seen or accelerator < 0:
            rule = "must be 0 or more" if accelerator < 0 else "must be in one group only, and only once in that group"
            raise InvalidInput(field, accelerator, rule)
        seen.add(accelerator)


def _kept(groups: Groups, num_accelerators: int) -> Iterator[tuple[int, ...]]:
    for group in groups:
        if left := tuple(each for each in group if each < num_accelerators):
            yield left


def _share(groups: Groups, one: int, other: int) -> bool:
    return any(one in group and other in group for group in groups)


def _number(groups: Groups, accelerator: int) -> int:
    """Return the number of an accelerator's group: the lowest accelerator of the group.

    An accelerator in no group is its own group.
    """
    return next((min(group) for group in groups if accelerator in group), accelerator)


@value
class Tier:
    """All switches of one level of a network, such as the leaf switches. They are equal to each other."""

    name: str
    """Name of the level in answers: ``leaf``, ``spine``."""
    nodes_per_switch: Count
    """Number of nodes below one switch of this level, including the nodes below lower levels."""
    oversubscription: FromOne = 1.0
    """Bandwidth of the nodes below a switch divided by the bandwidth of the switch's uplinks; 1.0 is non-blocking. The
    highest level has no uplinks."""
    latency_s: Seconds = 0.0
    """Additional one-way latency of a message whose highest switch is on this level, compared with a message whose
    highest switch is one level below."""


@value
class Network:
    """The network between the nodes of a cluster: levels of switches, or a torus.

    Nodes are numbered so that the nodes below one switch have consecutive numbers.
    """

    name: str
    """Name of the network in answers."""
    tiers: tuple[Tier, ...] = ()
    """Levels of switches, from the switches that nodes are plugged into upwards. Above the last level, the network is
    non-blocking and joins all nodes. Empty: one switch, or a torus."""
    num_rails: Count = 1
    """Number of rails. Each port of a node belongs to a rail with its own lowest switches, which join the same port of
    other nodes. Accelerator i of a node with g accelerators uses rail i * num_rails // g. 1: all ports of a node are
    plugged into one switch."""
    torus: tuple[int, ...] = ()
    """Number of nodes along each dimension of a torus. Neighbours along the first dimension have consecutive numbers.
    Empty: the network has switches and is no torus."""
    ports_per_node: Count | None = None
    """Number of ports that a node's accelerators share; None: each accelerator has its own port."""
    adds: bool = False
    """True if the switches compute sums of the data that passes them (InfiniBand SHARP)."""
    adapts_routes: bool = True
    """True if the switches spread packets over all paths (adaptive routing), so that no two flows collide by chance."""
    source: str = ""
    """Origin of the description: a kind of file, a preset, or a person."""

    def __post_init__(self) -> None:
        if self.tiers and self.torus:
            raise InvalidInput(
                "torus", list(self.torus), "must be left out, because this network has tiers of switches", "[]"
            )
        if any(length < 2 for length in self.torus):
            raise InvalidInput("torus", list(self.torus), "must have at least 2 nodes along each dimension")
        sizes = [tier.nodes_per_switch for tier in self.tiers]
        for below, above in pairwise(sizes):
            if above % below or above == below:
                rule = f"must be a larger multiple of {below}, the nodes_per_switch of the next lower tier"
                raise InvalidInput("nodes_per_switch", above, rule, below * max(2, round(above / below)))

    def require_nodes(self, num_nodes: int) -> None:
        """Check that the network can join exactly this number of nodes.

        Raises:
            InvalidInput: The network is a torus with more or fewer nodes.
        """
        if self.torus and math.prod(self.torus) != num_nodes:
            rule = (
                f"must be {math.prod(self.torus)}, because a torus of {' x '.join(map(str, self.torus))} "
                "joins that many nodes"
            )
            raise InvalidInput("num_nodes", num_nodes, rule, math.prod(self.torus))

    def resized(self, num_nodes: int) -> Self:
        """Return the network for another number of nodes. A torus gets other lengths; switches stay the same."""
        if not self.torus or math.prod(self.torus) == num_nodes:
            return self
        dimensions = range(len(self.torus), 0, -1)
        found = next((lengths for number in dimensions if (lengths := torus_lengths(num_nodes, number))), ())
        return replace(self, torus=found)


def torus_lengths(num_nodes: int, num_dimensions: int) -> tuple[int, ...]:
    """Return the number of nodes along each dimension of a torus, as equal as possible; empty if none fits.

    Args:
        num_nodes: Number of nodes of the whole torus.
        num_dimensions: Number of dimensions. Each has at least 2 nodes.

    Example:
        >>> torus_lengths(64, 3)
        (4, 4, 4)
    """
    if num_dimensions == 1:
        return (num_nodes,) if num_nodes > 1 else ()
    fitting = (length for length in divisors(num_nodes) if 1 < length <= round(num_nodes ** (1 / num_dimensions)))
    splits = ((length, *torus_lengths(num_nodes // length, num_dimensions - 1)) for length in fitting)
    whole = (lengths for lengths in splits if len(lengths) == num_dimensions)
    return min(whole, key=lambda lengths: (max(lengths), sum(lengths)), default=())
