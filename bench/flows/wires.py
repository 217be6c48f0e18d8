"""Wires: the links of a cluster's network, numbered, and which of them a message passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from autotuner.core.cluster import Cluster
from autotuner.core.network import Network, Tier
from bench.flows.streams import Floats, Integers, Streams

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
