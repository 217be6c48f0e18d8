"""Flows over the links of a cluster's network, one by one, at max-min fair shares; there are no packets.

All rates rise together until a link is full; its streams stay as they are, and the others rise on (Bertsekas, Gallager,
"Data Networks", 2nd edition, section 6.5.2). The closed forms of a described network are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from operator import mul
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.network import Network, Tier
from autotuner.core.placement import Spread

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Streams:
    """Streams over links, as the entries of a sparse matrix.

    A stream is whatever goes on at one pace: a single message, or a whole ring, which is as fast as its slowest edge.
    """

    num_streams: int
    """How many there are, those that pass no link among them."""
    stream: Integers
    """Of each entry."""
    link: Integers
    """Of each entry."""
    weight: Floats
    """Bytes that pass the link while the stream progresses by one."""

    @classmethod
    def joined(cls, parts: Sequence[Streams]) -> Streams:
        """The entries of all parts, whose streams are the same."""
        return cls(
            num_streams=parts[0].num_streams,
            stream=np.concatenate([part.stream for part in parts]),
            link=np.concatenate([part.link for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
        )

    def beside(self, other: Streams) -> Streams:
        """Both at the same time, the other's streams numbered behind these."""
        shifted = Streams(
            num_streams=self.num_streams + other.num_streams,
            stream=other.stream + self.num_streams,
            link=other.link,
            weight=other.weight,
        )
        whole = Streams(num_streams=shifted.num_streams, stream=self.stream, link=self.link, weight=self.weight)
        return Streams.joined([whole, shifted])

    def reversed_at(self, reverse: Integers) -> Streams:
        """The same streams over each link's other direction."""
        return Streams(num_streams=self.num_streams, stream=self.stream, link=reverse[self.link], weight=self.weight)


_FULL = 1e-9
"""Share of its capacity that a full link may have left over: rounding."""


def fair_rates(streams: Streams, capacities: Floats) -> Floats:
    """Max-min fair rate of each stream; infinite for one that passes no link.

    Args:
        streams: What passes which link.
        capacities: Bytes per second of each link.
    """
    rates = np.full(streams.num_streams, np.inf)
    stream, link, weight = streams.stream, streams.link, streams.weight
    left, level = capacities.astype(np.float64), 0.0
    while len(stream):
        load = np.bincount(link, weights=weight, minlength=len(capacities))
        rising = load > 0
        rise = float((left[rising] / load[rising]).min())
        level, left = level + rise, left - rise * load
        is_full = rising & (left <= _FULL * capacities)
        held = np.zeros(streams.num_streams, dtype=np.bool_)
        held[stream[is_full[link]]] = True
        rates[held] = level
        rises = ~held[stream]
        stream, link, weight = stream[rises], link[rises], weight[rises]
    return rates


_NO_NETWORK = Network(name="one switch")


@dataclass(frozen=True, eq=False)
class Wires:
    """Ports of accelerators, uplinks of switches, links of a torus; of each one per direction.

    Accelerators are numbered node by node. Switches of a tier count as one with the bandwidth of all its uplinks, as
    they are where routes adapt. NVLink is no wire: it is never what limits traffic between nodes.
    """

    cluster: Cluster
    pxn: bool = True
    port_bytes_per_s: float = field(init=False)

    def __post_init__(self) -> None:
        link = self.cluster.inter_node_link
        object.__setattr__(self, "port_bytes_per_s", link.efficiency * link.bandwidth_bytes_per_s)

    @property
    def network(self) -> Network:
        """What the cluster describes; one switch where it describes nothing."""
        return self.cluster.network or _NO_NETWORK

    def capacities(self) -> Floats:
        """Bytes per second of each wire."""
        return np.repeat([size for _, size in self._kinds()], [2 * count for count, _ in self._kinds()])

    def _kinds(self) -> list[tuple[int, float]]:
        """How many wires of a kind there are per direction, and their bandwidth: ports, then tiers or dimensions."""
        cluster, per_node = self.cluster, self.cluster.accelerators_per_node
        kinds = [(cluster.num_nodes * self._ports, self.port_bytes_per_s * per_node / self._ports)]
        for _ in self.network.torus:
            kinds.append((cluster.num_nodes, self.port_bytes_per_s * per_node / (2 * len(self.network.torus))))
        for height, thinner in enumerate(self._thinner()):
            switches = self._num_switches(height)
            rails = self.network.num_rails if height == 0 else 1
            below = self.network.tiers[height].nodes_per_switch * per_node
            kinds.append((switches * rails, below * self.port_bytes_per_s / thinner / rails))
        return kinds

    def passed(self, stream: Integers, source: Integers, target: Integers, weight: Floats, num_streams: int) -> Streams:
        """Wires that messages between accelerators pass; none inside an NVLink domain.

        Args:
            stream: That each message belongs to.
            source: Accelerator that sends it.
            target: Accelerator that it is for.
            weight: Its bytes.
            num_streams: Of all messages.
        """
        apart = source // self.cluster.accelerators_per_domain != target // self.cluster.accelerators_per_domain
        stream, source, target, weight = (column[apart] for column in (stream, source, target, weight))
        entries = self._around_torus if self.network.torus else self._through_switches
        found = [
            Streams(num_streams=num_streams, stream=stream[rows], link=links, weight=share * weight[rows])
            for rows, links, share in entries(source, target)
        ]
        nothing = Streams(num_streams=num_streams, stream=stream[:0], link=stream[:0], weight=weight[:0])
        return Streams.joined([nothing, *found])

    # ------------------------------------------------------------ switches
    @property
    def _ports(self) -> int:
        return self.network.ports_per_node or self.cluster.accelerators_per_node

    @property
    def _tiers(self) -> list[Tier]:
        """Those that do not join all nodes with a single switch."""
        return [tier for tier in self.network.tiers if tier.nodes_per_switch < self.cluster.num_nodes]

    def _thinner(self) -> Iterator[float]:
        return accumulate((tier.oversubscription for tier in self._tiers), mul)

    def _num_switches(self, height: int) -> int:
        return -(-self.cluster.num_nodes // self.network.tiers[height].nodes_per_switch)

    def _through_switches(self, source: Integers, target: Integers) -> Iterator[tuple[Integers, Integers, float]]:
        """Rows of messages, the wire that each passes, and what of it does."""
        per_node, rails = self.cluster.accelerators_per_node, self.network.num_rails
        if self.pxn and rails > 1:  # NVLink takes it to the accelerator of the target's rail
            source = source // per_node * per_node + target % per_node
        rows = np.arange(len(source))
        first = 0
        for height, (count, _) in enumerate(self._kinds()[: 1 + len(self._tiers)]):
            ends = [self._wire(one, height) for one in (source, target)]
            passes = rows if height == 0 else rows[ends[0] != ends[1]]
            yield passes, first + ends[0][passes], 1.0
            yield passes, first + count + ends[1][passes], 1.0
            first += 2 * count

    def _wire(self, accelerator: Integers, height: int) -> Integers:
        """Number of the port, or of the switch whose uplinks lead out of a tier."""
        per_node, rails = self.cluster.accelerators_per_node, self.network.num_rails
        node, place = np.divmod(accelerator, per_node)
        if height == 0:
            port: Integers = node * self._ports + place * self._ports // per_node
            return port
        switch: Integers = node // self.network.tiers[height - 1].nodes_per_switch
        if height == 1:
            switch = switch * rails + place * rails // per_node
        return switch

    # ------------------------------------------------------------ a torus
    def _around_torus(self, source: Integers, target: Integers) -> Iterator[tuple[Integers, Integers, float]]:
        """Dimension by dimension, the shorter way; half of the bytes either way where both are as long."""
        lengths, nodes = self.network.torus, self.cluster.num_nodes
        yield from self._through_switches(source, target)
        first = 2 * nodes * self._ports
        here, there = (rank // self.cluster.accelerators_per_node for rank in (source, target))
        for dimension, length in enumerate(lengths):
            below = prod(lengths[:dimension])
            at, goal = here // below % length, there // below % length
            onward = (goal - at) % length
            for way, distance in ((1, onward), (-1, length - onward)):
                for hop in range(length // 2):
                    rows = np.flatnonzero((distance % length > hop) & (2 * distance <= length))
                    node = here + ((at + way * hop) % length - at) * below
                    wires = first + (2 * dimension + (way < 0)) * nodes + node
                    both = rows[2 * distance[rows] == length]
                    one = rows[2 * distance[rows] < length]
                    yield one, wires[one], 1.0
                    yield both, wires[both], 0.5
            here = here + (goal - at) * below


@dataclass(frozen=True, eq=False, kw_only=True)
class AxisTraffic:
    """The groups of one axis on the wires of a cluster."""

    wires: Wires
    """Of the cluster."""
    spread: Spread
    """How the groups lie in the numbers of ranks."""
    placement: RankPlacement = RankPlacement.BLOCK
    """How ranks are dealt to nodes."""
    sorts_ring: bool = True
    """Rings pass nodes one after the other, a ring through each port, as NCCL's do; else one ring passes the ranks in
    the order of their numbers."""

    def rings(self) -> Streams:
        """A stream per group, whose progress by one moves a byte over each edge of its ring."""
        members = self._members()
        if not self.sorts_ring:
            return self._along(members, np.roll(members, -1, axis=1), np.ones(members.shape))
        members = np.sort(members, axis=1)
        node = members // self.wires.cluster.accelerators_per_domain
        channels, first = _of_nodes(node)
        return self._channels(members, channels, first)

    def all_to_alls(self) -> Streams:
        """A stream per rank, whose progress by one moves an equal share of a byte to each rank of its group."""
        members = self._members()
        num_groups, size = members.shape
        source = np.repeat(members[:, :, None], size, axis=2).ravel()
        target = np.repeat(members[:, None, :], size, axis=1).ravel()
        stream = np.repeat(np.arange(num_groups * size), size)
        shares = np.full(len(stream), 1 / size)
        return self.wires.passed(stream, source, target, shares, num_groups * size)

    def sends(self) -> Streams:
        """A stream per rank but the last of each group, which sends to the next."""
        members = self._members()
        source, target = members[:, :-1].ravel(), members[:, 1:].ravel()
        stream = np.arange(len(source))
        return self.wires.passed(stream, source, target, np.ones(len(stream)), len(stream))

    # ------------------------------------------------------------ where ranks lie
    def _members(self) -> Integers:
        """Accelerators of each group's ranks, in the order of rank numbers, of shape (groups, ranks)."""
        size, stride = self.spread
        cluster = self.wires.cluster
        starts = np.arange(0, cluster.world_size, size * stride)[:, None] + np.arange(stride)
        ranks = starts.reshape(-1, 1) + stride * np.arange(size)
        if self.placement == RankPlacement.BLOCK:
            return ranks
        return ranks % cluster.num_nodes * cluster.accelerators_per_node + ranks // cluster.num_nodes

    # ------------------------------------------------------------ rings
    def _along(self, source: Integers, target: Integers, weight: Floats) -> Streams:
        stream = np.repeat(np.arange(len(source)), source.shape[1])
        return self.wires.passed(stream, source.ravel(), target.ravel(), weight.ravel(), len(source))

    def _channels(self, members: Integers, channels: int, first: Integers) -> Streams:
        """Rings through the first ranks of each node, through the second ones ...; on a torus in both directions."""
        both = bool(self.wires.network.torus)
        parts = []
        for channel in range(channels):
            ring = np.take_along_axis(members, first + channel, axis=1)
            after = np.roll(ring, -1, axis=1)
            share = np.full(ring.shape, (0.5 if both else 1.0) / channels)
            parts.append(self._along(ring, after, share))
            if both:
                parts.append(self._along(after, ring, share))
        return Streams.joined(parts)


def _of_nodes(node: Integers) -> tuple[int, Integers]:
    """Ranks that each node has of a group at least, and the places of the first of each node.

    Groups lie on as many nodes each, or are cut at every place where any group changes nodes.
    """
    changes = np.flatnonzero((node[:, 1:] != node[:, :-1]).any(axis=0)) + 1
    first = np.concatenate([[0], changes])
    channels = int(np.diff(np.append(first, node.shape[1])).min())
    return channels, np.repeat(first[None, :], len(node), axis=0)
