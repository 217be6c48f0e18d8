"""Load of the levels of a switched network, and of the dimensions of a torus.

This model was not compared with any measurement. Each queue pair of each connection is a ball, each uplink is a bin,
and a collective waits for the fullest bin. With as many balls as bins, the fullest bin has about ``log n / log log n``
balls (Raab, Steger, "Balls into bins, a simple and tight analysis", 1998): networks without adaptive routing are slower
than their links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil, prod, sqrt
from operator import mul

import numpy as np

from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.network import Network, Tier
from autotuner.costmodel.communication.rank_placement import Places


def unevenness(num_balls: Floats, num_bins: float) -> Floats:
    """Return the expected number of balls in the fullest bin, divided by the average number per bin.

    Balls fall into bins at random, as connections fall on the uplinks of a switch. The result is 1 for no balls or a
    single bin. The function treats the numbers of balls in the bins as independent Poisson variables. This differs by
    at most 3 % from a simulation of 8 to 512 bins.

    Example:
        >>> unevenness(np.array([1.0, 8.0]), 1).tolist()
        [1.0, 1.0]
    """
    bins = max(1, round(num_bins))
    few, which = np.unique(np.maximum(num_balls, 0.0), return_inverse=True)
    return np.array([_one(float(balls), bins) for balls in few])[which].reshape(np.shape(num_balls))


def _one(num_balls: float, num_bins: int) -> float:
    """Return the mean number of balls in the fullest bin, relative to an even spread, for one pair of numbers.

    The fullest bin holds ``sum over k of P(some bin holds more than k)`` balls.
    """
    if num_balls <= 1 or num_bins == 1:
        return float(num_bins) if 0 < num_balls <= 1 else 1.0
    mean = num_balls / num_bins
    if mean > _MANY:
        return 1 + sqrt(2 * np.log(num_bins) / mean)
    counts = np.arange(1, ceil(mean + 12 * sqrt(mean) + 30))
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    at_most = np.minimum(np.cumsum(np.exp(logarithms)), 1.0)
    return max(1.0, float((1 - at_most**num_bins).sum())) / mean


_MANY = 1e4
"""Number of balls per bin from which the normal distribution is used for the tail. Its square root is then within 1
%."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkLoad:
    """The load of one kind of network links while all groups of an axis communicate at once, one row per layout.

    The unit is the load of one rank's port: with a load of 2, bytes take twice as long over these links as through the
    port. The load is 0 for groups that do not use these links.
    """

    name: str
    """Name of the links in answers."""
    ring: Floats
    """Load of these links by one ring round, if rings visit ranks in their numbered order."""
    ring_by_node: Floats
    """Load of these links by one ring round, if rings visit the nodes one after the other."""
    all_to_all: Floats
    """Load of these links by the bytes that a rank sends in equal shares to all ranks of its group."""
    send: Floats
    """Load of these links by the bytes that a rank sends to its neighbour in the group."""
    num_parts: Integers
    """Number of parts of the cluster below these links that contain ranks of one group."""
    ring_steps: Floats
    """Number of steps of one ring round that pass these links."""
    latency_s: Floats
    """Extra latency of a message over these links, compared with one that stays below them."""

    def joined(self, num_joined: Integers) -> NetworkLoad:
        """Return the load if ``num_joined`` neighbouring ranks take part in a ring as one rank and share its bytes.

        Each of their ports then carries an equal part of the bytes. Only the loads by rings change.
        """
        return replace(self, ring=self.ring / num_joined, ring_by_node=self.ring_by_node / num_joined)

    def of_one_in(self, num_ranks: Integers) -> NetworkLoad:
        """Return the load of rings between nodes, each with one rank per node, if ``num_ranks`` of them run at once.

        ``num_ranks`` is the number of ranks per node that take part, each in a ring of its own.
        """
        by_node = self.ring_by_node * num_ranks
        return replace(self, ring=by_node, ring_by_node=by_node, ring_steps=np.maximum(self.num_parts - 1.0, 0.0))


def network_loads(places: Places, cluster: Cluster, layouts: LayoutColumns | None) -> tuple[NetworkLoad, ...]:
    """Return the load of each kind of network link while the groups communicate; links near the nodes come first.

    ``NetworkLoad`` explains the unit: the load of one rank's port.

    Args:
        places: The nodes on which the groups' ranks lie.
        cluster: Cluster with the network.
        layouts: Layouts of the groups, which may configure NCCL; None: NCCL's own choices.

    Returns:
        An empty tuple if the cluster has no description of its network.
    """
    network = cluster.network
    if network is None:
        return ()
    if network.torus:
        return tuple(_torus_loads(places, network, cluster))
    return tuple(_tier_loads(places, network, cluster, layouts))


# ---------------------------------------------------------------- tiers of switches
def _tier_loads(
    places: Places, network: Network, cluster: Cluster, layouts: LayoutColumns | None
) -> Iterator[NetworkLoad]:
    """Yield the load of the uplinks of each level of switches.

    Traffic whose highest switch is on a level uses the uplinks of the level below, or the ports. The bandwidth of a
    switch's uplinks is the bandwidth of the ports below it, divided by the product of all oversubscriptions up to that
    level.
    """
    inside = _ranks_in_domain(places, cluster)
    for height, (tier, thinner) in enumerate(zip(network.tiers, _thinner(network), strict=True)):
        part = tier.nodes_per_switch
        if part >= cluster.num_nodes:
            return  # one switch joins everything above
        above_s = network.tiers[height + 1].latency_s if height + 1 < len(network.tiers) else 0.0
        scattered = places.share_scattered_out(part)
        if height == 0:
            scattered = _scattered_over_rails(scattered, inside, places, network, layouts)
        yield _uplinks(_Uplinks(tier, network, thinner, above_s), places, inside, scattered, layouts)


@dataclass(frozen=True, slots=True)
class _Uplinks:
    """The links that leave the switches of one level upwards, with their latency and relative bandwidth."""

    tier: Tier
    network: Network
    thinner: float
    latency_s: float


def _uplinks(
    links: _Uplinks, places: Places, inside: Integers, scattered: Floats, layouts: LayoutColumns | None
) -> NetworkLoad:
    """Return the load of the uplinks of one level of switches.

    Args:
        links: Uplinks of the tier.
        places: Places of the groups.
        inside: Number of ranks of a group that share a node.
        scattered: Share of all-to-all bytes that passes these links.
        layouts: Layouts of the groups.
    """
    part, thinner = links.tier.nodes_per_switch, links.thinner
    leaves = places.leave(part)
    size = part * places.ranks_per_node
    shared, by_node = places.ring_ranks(part), places.ring_ranks(part, by_node=True)
    streams = inside if places.sorts_ring else np.ones_like(inside)  # NCCL has a ring through each port of a node
    sent = places.share_sent_out(part)
    worse = _Unevenness(links, size, layouts)
    return NetworkLoad(
        name=f"{links.tier.name} uplinks",
        ring=np.where(leaves, thinner / shared * worse.of(size / shared * streams), 0.0),
        ring_by_node=np.where(leaves, thinner / by_node * worse.of(size / by_node * streams), 0.0),
        all_to_all=thinner * scattered * worse.of(size * scattered * places.num_ranks),
        send=thinner * sent * worse.of(size * sent),
        num_parts=places.num_parts(part),
        ring_steps=places.ring_steps_out(part),
        latency_s=np.where(leaves, links.latency_s, 0.0),
    )


@dataclass(frozen=True, slots=True)
class _Unevenness:
    """The random imbalance between the uplinks of a switch, by the number of ranks below the switch."""

    links: _Uplinks
    num_ranks: int
    layouts: LayoutColumns | None

    def of(self, num_flows: Floats) -> Floats | float:
        """Return the load of the fullest uplink relative to the mean, if this number of flows leave one switch."""
        network = self.links.network
        if network.adapts_routes or self.num_ranks == 0:
            return 1.0
        pairs = 1 if self.layouts is None else self.layouts.queue_pairs
        rails = network.num_rails if self.links.tier is network.tiers[0] else 1
        return unevenness(num_flows * pairs / rails, self.num_ranks / self.links.thinner / rails)


def _thinner(network: Network) -> Iterator[float]:
    return accumulate((tier.oversubscription for tier in network.tiers), mul)


def _ranks_in_domain(places: Places, cluster: Cluster) -> Integers:
    return places.ranks_below(cluster.accelerators_per_domain // cluster.accelerators_per_node)


def _scattered_over_rails(
    scattered: Floats, inside: Integers, places: Places, network: Network, layouts: LayoutColumns | None
) -> Floats:
    """Return the share of all-to-all bytes that leaves the lowest switches.

    It includes traffic to other rails that NVLink does not relay.
    """
    if network.num_rails == 1 or layouts is None or layouts.pxn.all():
        return scattered
    outside = (places.num_ranks - inside) / places.num_ranks
    off_rail = scattered + (outside - scattered) * (1 - 1 / _rails_met(inside, places, network))
    return np.where(layouts.pxn, scattered, off_rail)


def relayed_share(inside: Integers, places: Places, network: Network, layouts: LayoutColumns | None) -> Floats | float:
    """Return the share of all-to-all bytes for other nodes that first go over NVLink to an accelerator of another rail.

    A rail is a separate switch for the ports at the same position of each node.

    Args:
        inside: Number of ranks of a group that share a node.
        places: The nodes on which the groups' ranks lie.
        network: Network with its rails.
        layouts: Layouts, which may turn this relay off (NCCL's PXN); None: the relay is on.
    """
    share = 1 - 1 / _rails_met(inside, places, network)
    return share if layouts is None else np.where(layouts.pxn, share, 0.0)


def _rails_met(inside: Integers, places: Places, network: Network) -> Floats:
    """Return the number of rails that the group's ranks in one node use."""
    step = np.where(places.is_cyclic, np.maximum(1, places.stride // places.num_nodes), places.stride)
    met = np.ceil(inside * step * network.num_rails / places.ranks_per_node)
    return np.clip(met, 1, np.minimum(inside, network.num_rails))


# ---------------------------------------------------------------- a torus
def _torus_loads(places: Places, network: Network, cluster: Cluster) -> Iterator[NetworkLoad]:
    """Yield the load of each dimension's links. All links of a node together have the bandwidth of its ports.

    Messages take the shorter way along each dimension. Rings of NCCL use both directions at once; other rings use one.
    """
    lengths = network.torus
    on_node = places.ranks_below(1)
    hops = _node_stride(places)
    num_nodes = places.num_parts(1)
    for dimension, length in enumerate(lengths):
        below = prod(lengths[:dimension])
        line = _Line.of(hops, num_nodes, below, length)
        ways = 1.0 if places.sorts_ring else 2.0
        ring = len(lengths) * line.hops * (line.back_and_forth if places.sorts_ring else 1.0) * ways / on_node
        leaves = places.leave(1)
        yield NetworkLoad(
            name=f"torus dimension {dimension + 1}",
            ring=np.where(leaves, ring, 0.0),
            ring_by_node=np.where(leaves, ring, 0.0),
            all_to_all=np.where(leaves, len(lengths) * line.mean_hops, 0.0),
            send=len(lengths) * line.hops * line.ways_of_a_send * places.share_sent_out(1),
            num_parts=num_nodes,
            ring_steps=places.ring_steps_out(1),
            latency_s=np.where(leaves, np.maximum(line.hops - 1, 0) * cluster.inter_node_link.latency_s, 0.0),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """The nodes of a group along one dimension of a torus: their distance and number, and the dimension's length."""

    hops: Integers
    num_nodes: Integers
    length: int

    @classmethod
    def of(cls, stride: Integers, num_nodes: Integers, below: int, length: int) -> _Line:
        """Return the line of nodes that lie ``stride`` apart, in a dimension whose step is ``below`` nodes."""
        up = stride // below % length
        reached = np.clip(-(-num_nodes * stride // below), 1, length)
        points = np.where(up > 0, np.minimum(num_nodes, -(-length // np.maximum(up, 1))), reached)
        starts_below = (stride < below) & (num_nodes * stride > below)
        return cls(
            hops=np.minimum(up, length - up),
            num_nodes=np.where(starts_below, reached, np.where(up > 0, points, 1)),
            length=length,
        )

    @property
    def step(self) -> Integers:
        """The distance from one node to the next; 1 if the group fills lower dimensions first."""
        return np.maximum(self.hops, 1)

    @property
    def is_whole(self) -> Booleans:
        """True if the group goes all around the dimension."""
        return self.num_nodes * self.step >= self.length

    @property
    def back_and_forth(self) -> Floats:
        """The load of a link by a ring in both directions: 2 if the ring must return the way it came."""
        return np.where(self.is_whole, 1.0, 2.0)

    @property
    def ways_of_a_send(self) -> Floats:
        """The load of a link by a byte that is sent one way; half of it if both ways are equally long."""
        return np.where(2 * self.hops == self.length, 1.0, 2.0)

    @property
    def mean_hops(self) -> Floats:
        """The mean number of this dimension's links that an all-to-all's byte uses, per half of a node's links."""
        points = self.num_nodes
        around = self.step * (points**2 // 4) / points
        return np.where(points > 1, np.where(self.is_whole, around, 2 * around), 0.0)


def _node_stride(places: Places) -> Integers:
    """Return the number of nodes from one rank of a group to the next one on another node."""
    blocks = np.maximum(1, places.stride // places.ranks_per_node)
    around = np.where(places.span > places.num_nodes, np.gcd(places.stride, places.num_nodes), places.stride)
    return np.where(places.is_cyclic, around, blocks)
