"""Group: a group of ranks, and the links between them.

The bytes of a ring follow Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
(2005). The split of latency between links inside nodes and between nodes follows NCCL's tuning model
(src/graph/tuning.cc). The constants of the links are in catalog/links.toml, those of the algorithms here;
``research/fit_links.py`` prints their error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.link import Link, LinkHealth, latest
from autotuner.core.network import PathKind
from autotuner.core.placement import Spread, cyclic_crosses
from autotuner.costmodel.communication.link_load import NetworkLoad
from autotuner.costmodel.communication.node_topology import WiredNode

DEAD_S = 1e6
"""Time of a message over a link that does not work. It means infinity, but is finite so that sums and differences stay
numbers."""

Crosses: TypeAlias = Callable[[Spread, LinkHealth, Cluster], bool]
"""A function that returns True if groups with this spread communicate over a link: ``ring_crosses`` or
``pair_crosses``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLinks:
    """The delay and the slowdown that degraded links cause in the groups of each layout, one row per layout."""

    delay_s: Floats
    """One-way delay of every message over the link."""
    slowdown: Floats
    """Time of a byte over the link divided by the time over the cluster's nominal link."""

    @classmethod
    def none(cls, size: int) -> SlowLinks:
        """Return the values for nominal links: no delay, and a slowdown of 1.

        Args:
            size: Number of rows.
        """
        return cls(delay_s=np.zeros(size), slowdown=np.ones(size))

    def where(self, rows: Booleans) -> SlowLinks:
        """Return a copy that keeps delay and slowdown in the rows of a mask. All other rows get nominal links.

        Args:
            rows: True where the values stay.
        """
        return SlowLinks(delay_s=np.where(rows, self.delay_s, 0.0), slowdown=np.where(rows, self.slowdown, 1.0))

    def over(self, rows: Booleans, health: LinkHealth, cluster: Cluster) -> SlowLinks:
        """Return a copy that also takes one more degraded link, or a class of links, into account.

        The state of a single link can only raise the delay and the slowdown of a row. The state of a whole class of
        links (such as all links between nodes) can only raise the delay, but it replaces the slowdown.

        Args:
            rows: True where a group of the layout uses the link.
            health: State of the link, or of a class of links.
            cluster: Cluster with the nominal links.
        """
        factor, late_s = slowdown(health, cluster), DEAD_S if health.is_dead else health.delay_s
        slower = np.maximum(self.slowdown, factor) if health.ends is not None else np.full_like(self.slowdown, factor)
        return SlowLinks(
            delay_s=np.where(rows, np.maximum(self.delay_s, late_s), self.delay_s),
            slowdown=np.where(rows, slower, self.slowdown),
        )


def slow_of(x: LayoutColumns, cluster: Cluster, crosses: Crosses, *spreads: Spread) -> SlowLinks | None:
    """Return the delay and slowdown of the slowest link of each layout's groups; None if no link is degraded.

    The job waits for all groups of an axis, so that the slowest group decides.

    Args:
        x: Layouts, one per row.
        cluster: Cluster with the states of its links.
        crosses: Function that returns whether groups use a link, such as ``ring_crosses``.
        spreads: The groups: for each kind of group, the number of ranks and the step between their rank numbers.
    """
    if not cluster.link_health:
        return None
    slow, is_cyclic = SlowLinks.none(len(x)), x.rank_placement == RankPlacement.CYCLIC
    for health in classes_first(cluster):
        rows = np.zeros(len(x), dtype=np.bool_)
        for spread in spreads:
            filled = cast("Booleans", crosses(spread, health, cluster))
            rows |= np.where(is_cyclic, cyclic_crosses(spread, health, cluster), filled) if is_cyclic.any() else filled
        slow = slow.over(rows, health, cluster)
    return slow


def classes_first(cluster: Cluster) -> list[LinkHealth]:
    """Return the last known state of each class of links, followed by the last known state of each single link.

    The states of single links come later, because they may differ from the state of their class.
    """
    return sorted(latest(cluster.link_health), key=lambda health: health.ends is not None)


def slowdown(health: LinkHealth, cluster: Cluster) -> float:
    """Return how many times longer a byte takes on a degraded link than on the cluster's nominal link.

    The result is 1 if the bandwidth of the degraded link is not known.
    """
    known = health.bandwidth_bytes_per_s
    return 1.0 if known is None else cluster.link_between_ends.bandwidth_bytes_per_s / known


OWN_SHARD_COST = 0.25
"""Cost of a rank's own shard, which the rank reads and writes but does not send, relative to a shard that it sends.

This cost explains why few ranks reach less bandwidth than many: 2 of 8 A100 reach 0.73 of the bandwidth of 8 in an
all-gather, and 0.86 in an all-reduce. Fits to 2 to 8 ranks are as good with 0.2 as with 0.4: the median error on A100
moves from 7 to 8 %, on H100 not at all.
"""

_SWITCHED_SHARE = 0.9

TREE_WAIT = 1.05
"""Time of this project's tree all-reduces divided by the transfer time of their bytes. The rest is the latency of the
first segment up and down the tree, and waiting.

Measurements on 2026-11-23 gave 1.04 to 1.09, with block and with cyclic placement.
"""

MULTICAST_S = 25e-6
"""Latency of NVLink SHARP (NCCL 2.28, src/graph/tuning.cc: NVLS, Simple)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatRing:
    """A ring that visits ranks in the order of their numbers, as in gloo: its network ports and steps between nodes.

    NCCL's rings visit the nodes one after the other instead.
    """

    ports: Floats
    """Number of network ports of a node that one ring can use alone."""
    steps_between: Floats
    """Number of steps of one ring round that leave a node, without the last step."""


class LinkTime(NamedTuple):
    """The time for which some traffic keeps a kind of link busy, in seconds per byte; 0 if it does not use the link."""

    name: str
    s_per_byte: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Group:
    """The groups of ranks on one axis of parallelism, and the links between their ranks, with one row per layout."""

    num_ranks: Integers
    """Number of ranks of one group."""
    ranks_per_node: Integers
    """Number of ranks of the group that share a node. An NVLink domain of several nodes counts as one node here. Each
    rank has its own network port."""
    crosses_nodes: Booleans
    """True if the group lies on more than one node."""
    intra_node_link: Link
    """Link between ranks of one node."""
    inter_node_link: Link
    """Link from a rank to the network through its own port."""
    oversubscription: float
    """Bandwidth of the network's ports divided by the bandwidth of its core."""
    layouts: LayoutColumns | None = None
    """Layouts of the groups, whose options may configure NCCL; None: nothing is configured, as on CPU cores."""
    slow: SlowLinks | None = None
    """Slowdown by degraded links between the ranks; None: there are no such links."""
    network: tuple[NetworkLoad, ...] = ()
    """Load of the network's links above the nodes, from the lowest level up; empty: one switch."""
    ring: FlatRing | None = None
    """Description of how flat rings leave nodes; None: once per node, through the ports of all its ranks."""
    relayed: Floats | float = 0.0
    """Share of the all-to-all bytes leaving a node that first go over NVLink to the accelerator of another rail."""
    wired: WiredNode | None = None
    """Slowdown inside a node whose NVLink does not join all accelerators; None: no slowdown."""

    @cached_property
    def num_nodes(self) -> Integers:
        """The number of nodes that one group occupies."""
        return -(-self.num_ranks // self.ranks_per_node)

    # ------------------------------------------------------------ the two levels of a hierarchical collective
    @cached_property
    def inside_nodes(self) -> Group:
        """The groups of ranks that share a node, one group per node, for the lower level of a two-level collective."""
        return replace(
            self,
            num_ranks=self.ranks_per_node,
            crosses_nodes=np.zeros_like(self.crosses_nodes),
            network=(),
            ring=None,
            slow=None if self.slow is None else self.slow.where(~self.crosses_nodes),
        )

    @cached_property
    def between_nodes(self) -> Group:
        """The groups with one rank from each node, for the upper level of a two-level collective.

        There is one such group for each position in a node, and all these groups work at the same time.
        """
        return replace(
            self,
            num_ranks=self.num_nodes,
            ranks_per_node=np.ones_like(self.ranks_per_node),
            network=tuple(load.of_one_in(self.ranks_per_node) for load in self.network),
            ring=None,
            relayed=0.0,
            wired=None,
        )

    # ------------------------------------------------------------ seconds before and between the bytes
    @cached_property
    def start_s(self) -> Floats:
        """The seconds that a collective needs to start, before its first step; 0 for a group of one rank."""
        return np.where(self.num_ranks > 1, self.intra_node_link.start_s, 0.0)

    @cached_property
    def ramp_s(self) -> Floats:
        """The constant, in seconds, that says how long the chunks of a long message need to fill the slowest link.

        NCCL cuts a message into chunks. Until the first chunks fill the link, it is not fully used. This adds ``2
        sqrt(ramp * t)`` to a transfer that takes t seconds (see ``collectives``).
        """
        return np.where(self.crosses_nodes, self.inter_node_link.ramp_s * self._slowdown, self.intra_node_link.ramp_s)

    @cached_property
    def step_s(self) -> Floats:
        """The latency, in seconds, of one step of a collective over the group's slowest link."""
        above_s = _sum(np.where(load.send > 0, load.latency_s, 0.0) for load in self.network)
        return np.where(self.crosses_nodes, self._port_step_s, self._intra_step_s) + self._delay_s + above_s

    @cached_property
    def ring_latency_s(self) -> Floats:
        """The latency in seconds of one ring round: ``num_ranks - 1`` steps, of which some go to another node.

        The extra delay of a slow link counts in every step, because each rank sends what it received in the step
        before.
        """
        between = self.num_nodes - 1 if self.ring is None else self.ring.steps_between
        healthy_s: Floats = between * self._port_step_s + (self.num_ranks - 1 - between) * self._intra_step_s
        above_s = _sum(load.ring_steps * load.latency_s for load in self.network)
        return healthy_s + (self.num_ranks - 1) * self._delay_s + above_s

    @cached_property
    def tree_latency_s(self) -> Floats:
        """The latency in seconds of a sum that goes up a tree over all ranks and back down.

        Inside a node the tree goes from rank to rank, or over the switches if they can add. Between nodes each level of
        the tree adds a step.
        """
        link = self.intra_node_link
        steps = self.ranks_per_node > 1 if link.multicast_efficiency else 2 * (self.ranks_per_node - 1)
        inside = steps * (MULTICAST_S if link.multicast_efficiency else self._intra_step_s)
        late_s = 2 * np.ceil(np.log2(self.num_ranks)) * self._delay_s
        above_s = _sum(2 * np.ceil(np.log2(load.num_parts)) * load.latency_s for load in self.network)
        return inside + 2 * np.ceil(np.log2(self.num_nodes)) * self._port_step_s + late_s + above_s

    # ------------------------------------------------------------ seconds per byte, in long messages
    @cached_property
    def send_s_per_byte(self) -> Floats:
        """The seconds per byte of a send from one rank to its neighbour, over the slowest link between them."""
        return _slowest(self.send_links())

    @cached_property
    def ring_s_per_byte(self) -> Floats:
        """The seconds per byte of one ring round. Between nodes, the network ports of a node work in parallel."""
        return _slowest(self.ring_links()) / self.num_ranks

    def send_links(self) -> Iterator[LinkTime]:
        """Yield one number per kind of link: its busy seconds during a send, per byte that is sent.

        The links inside nodes come first, the links of the network's core last.
        """
        inside = self._unshared_s_per_byte * self._parts(2) * self._slower_inside
        yield from self._inside_links(np.where(self.crosses_nodes, 0.0, inside))
        yield LinkTime(self.inter_node_link.name, np.where(self.crosses_nodes, self._port_s_per_byte, 0.0))
        for load in self.network:
            yield LinkTime(load.name, load.send * self._good_port_s_per_byte)

    def ring_links(self) -> Iterator[LinkTime]:
        """Yield one number per kind of link: its busy seconds during one ring round, per byte of a rank's shard.

        The links inside nodes come first, the links of the network's core last.
        """
        inside: Floats = _passed_shards(self.num_ranks) * self._intra_s_per_byte
        yield from self._inside_links(inside)
        between = (self.num_ranks - 1) / self._ring_ports * self._port_s_per_byte
        yield LinkTime(self.inter_node_link.name, np.where(self.crosses_nodes, between, 0.0))
        for load in self.network:
            yield LinkTime(load.name, (self.num_ranks - 1) * load.ring * self._good_port_s_per_byte)

    def all_to_all_links(self, outside: Floats | float = 1.0) -> Iterator[LinkTime]:
        """Yield one number per kind of link: its busy seconds during an all-to-all, per byte from one rank to another.

        The links inside nodes come first, the links of the network's core last.

        Args:
            outside: Share of the bytes for other nodes that crosses the network, as for ``all_to_all_s_per_byte``.
        """
        beyond = self.num_ranks - self.ranks_per_node
        passed_on = beyond * np.where(np.asarray(outside) < 1, 1.0, self.relayed)
        sent = _passed_shards(self.ranks_per_node) + passed_on
        inside: Floats = sent * self._intra_s_per_byte * self._worse_in_pairs
        yield from self._inside_links(inside)
        yield LinkTime(self.inter_node_link.name, np.asarray(beyond * outside * self._port_s_per_byte))
        for load in self.network:
            yield LinkTime(load.name, self.num_ranks * load.all_to_all * outside * self._good_port_s_per_byte)

    def _inside_links(self, seconds: Floats) -> Iterator[LinkTime]:
        """Yield the links inside nodes, with their load in the rows in which they limit a ring."""
        if self.wired is None:
            yield LinkTime(self.intra_node_link.name, seconds)
            return
        for place, kind in enumerate(PathKind):
            name = kind.in_words if place else self.intra_node_link.name
            yield LinkTime(name, np.where(self.wired.limiting == place, seconds, 0.0))

    @cached_property
    def tree_s_per_byte(self) -> Floats:
        """The seconds per byte up and down a tree: inside nodes or between nodes, whichever takes longer.

        If the switches of a node compute the sum, each link carries 1 + 1 / n times the bytes for n ranks: the bytes of
        its rank once, and the rank's shards of the sum. In a ring each link carries 2 (n - 1) / n times the bytes.
        Between nodes the ranks of a node share the bytes that the node sends. All bytes go up once and down once, half
        of them in each of two trees (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast,
        reduction and scan", 2009). If switches compute sums, two nodes just exchange their sums: 362 GB/s on 2 nodes of
        H100, where an all-gather has 185 (Ultra-Scale Playbook). 2 nodes of A100 show no such gain: 45 GB/s with all
        ports, against 8 GB/s with one port (Hetu-Galvatron).
        """
        ranks, link = self.ranks_per_node, self.intra_node_link
        inside = 2 * _passed_shards(ranks) / ranks * self._intra_s_per_byte
        times_sent = 2 * (self.num_nodes > 1)
        if link.multicast_efficiency:
            switched = (1 + 1 / ranks) / (link.multicast_efficiency * link.bandwidth_bytes_per_s)
            inside = np.minimum(inside, switched * self._slower_inside)
            times_sent = np.minimum(self.num_nodes - 1, 2)
        slowest: Floats = np.maximum(inside, times_sent / ranks * self._port_s_per_byte)
        for load in self.network:  # a branch of the tree is below one switch
            slowest = np.maximum(slowest, times_sent * load.ring_by_node * self._good_port_s_per_byte)
        return slowest

    def all_to_all_s_per_byte(self, outside: Floats | float = 1.0) -> Floats:
        """Return the seconds per byte of an all-to-all, in which a rank sends equal shares of its bytes to all ranks.

        Links inside nodes and between them work at the same time.

        Args:
            outside: Share of the bytes for other nodes that crosses the network. It is below 1 if bytes for several
                ranks of one node are sent to this node once, and passed on over the links inside it. The links inside
                nodes also carry bytes that leave through the port of another rail.
        """
        return _slowest(self.all_to_all_links(outside)) / self.num_ranks

    # ------------------------------------------------------------ sums in the network's switches, and trees of our own
    @cached_property
    def switched_latency_s(self) -> Floats:
        """The latency in seconds of a sum that the network's switches compute.

        The data goes along the ranks of a node, once into the network, and back.
        """
        inside = 2 * self.intra_node_link.latency_s * (self.ranks_per_node - 1).astype(np.float64)
        above_s = _sum(np.where(load.num_parts > 1, load.latency_s, 0.0) for load in self.network)
        latency_s: Floats = inside + np.where(self.crosses_nodes, self._port_step_s + above_s, 0.0) + self._delay_s
        return latency_s

    @cached_property
    def switched_s_per_byte(self) -> Floats:
        """The seconds per byte of a sum that the network's switches compute.

        Each rank sends its part of the bytes to a switch once, and receives this part of the sum. The links above the
        lowest switches carry one sum for many ranks, so that they are never slower than the ports. NCCL assumes that
        sums reach 0.9 of the ports' bandwidth (src/graph/tuning.cc, 2.8).
        """
        ranks, link = self.ranks_per_node, self.intra_node_link
        inside: Floats = 2 * _passed_shards(ranks) / ranks * self._intra_s_per_byte
        if link.multicast_efficiency:
            switched = (1 + 1 / ranks) / (link.multicast_efficiency * link.bandwidth_bytes_per_s)
            inside = np.minimum(inside, switched * self._slower_inside)
        between = np.where(self.crosses_nodes, self._port_s_per_byte, 0.0) / (_SWITCHED_SHARE * ranks)
        slower: Floats = np.maximum(inside, between)
        return slower

    @cached_property
    def two_trees_latency_s(self) -> Floats:
        """The latency in seconds of a sum that goes up a binary tree and back down. The tree orders ranks by number.

        Each step counts as slow as a step over the group's slowest link.
        """
        latency_s: Floats = 2 * np.ceil(np.log2(self.num_ranks)) * self.step_s
        return latency_s

    def two_trees_s_per_byte(self, is_cyclic: Booleans) -> Floats:
        """Return the seconds per byte of an all-reduce over two trees, each of which carries half of the bytes.

        A rank with children in one tree is a leaf of the other tree, so that each rank sends every byte twice. With r
        ranks on each of K nodes, the trees send (3 - 2 / K) times the bytes out of a node with block placement. With
        cyclic placement, or with one rank per node, they send 2 r (1 - 1 / K) times the bytes. These counts are exact
        for powers of two, as in ``autotuner.training.ring_and_tree``.

        Args:
            is_cyclic: True for cyclic placement: rank i lies on node i modulo the number of nodes.
        """
        ranks, nodes = self.ranks_per_node, self.num_nodes
        apart = 2 * ranks * (1 - 1 / nodes)
        sent = np.where(is_cyclic | (ranks == 1), apart, 3 - 2 / nodes)
        sent = np.where(self.num_ranks > 2, TREE_WAIT, 1.0) * sent  # two ranks do not wait for each other
        between = np.where(self.crosses_nodes, sent, 0.0) / ranks * self._port_s_per_byte
        slowest: Floats = np.maximum(2 * self._intra_s_per_byte, between)
        for load in self.network:
            slowest = np.maximum(slowest, sent * load.ring_by_node * self._good_port_s_per_byte)
        return slowest

    # ------------------------------------------------------------ links as collectives find them
    @cached_property
    def _slowdown(self) -> Floats | float:
        exponent = self.inter_node_link.congestion
        return self.num_nodes.astype(np.float64) ** exponent if exponent else 1.0

    @property
    def _port_step_s(self) -> Floats | float:
        return self.inter_node_link.latency_s * self._slowdown

    @property
    def _ring_ports(self) -> Floats | Integers:
        return self.ranks_per_node if self.ring is None else self.ring.ports

    @property
    def _good_port_s_per_byte(self) -> Floats | float:
        """The seconds per byte of a port, without the degradation of single ports.

        A degraded port does not slow the switches above it.
        """
        return self._slowdown / (self.inter_node_link.efficiency * self.inter_node_link.bandwidth_bytes_per_s)

    @property
    def _port_s_per_byte(self) -> Floats | float:
        link = self.inter_node_link
        slower = 1.0 if self.slow is None else self.slow.slowdown
        return self._slowdown * self.oversubscription * slower / (link.efficiency * link.bandwidth_bytes_per_s)

    @cached_property
    def _intra_s_per_byte(self) -> Floats | float:
        return self._unshared_s_per_byte * self._parts(self.ranks_per_node) * self._slower_inside

    @property
    def _delay_s(self) -> Floats | float:
        return 0.0 if self.slow is None else self.slow.delay_s

    @property
    def _intra_step_s(self) -> Floats | float:
        return self.intra_node_link.latency_s + (0.0 if self.wired is None else self.wired.delay_s)

    @property
    def _slower_inside(self) -> Floats | float:
        """The slowdown of links inside a node by its wiring.

        If the group stays inside the node, degraded links count too.
        """
        ailing = 1.0 if self.slow is None else np.where(self.crosses_nodes, 1.0, self.slow.slowdown)
        return ailing if self.wired is None else ailing * self.wired.ring_slowdown

    @property
    def _worse_in_pairs(self) -> Floats | float:
        """The slowdown of an all-to-all inside a node, divided by the slowdown of a ring."""
        return 1.0 if self.wired is None else self.wired.pair_slowdown / self.wired.ring_slowdown

    @property
    def _unshared_s_per_byte(self) -> float:
        return 1 / (self.intra_node_link.efficiency * self.intra_node_link.bandwidth_bytes_per_s)

    def _parts(self, num_ranks: Integers | int) -> Floats | float:
        """Return the link's bandwidth divided by the part of the bandwidth that this number of ranks can use."""
        peers = self.intra_node_link.mesh_peers
        return peers / np.clip(num_ranks - 1, 1, peers) if peers else 1.0


def _passed_shards(num_ranks: Integers) -> Floats:
    """Return the number of shards of size 1 / n that pass a rank in one round.

    A rank sends n - 1 shards, and its own shard costs a part of one; the result is 0 for one rank.
    """
    return num_ranks - 1 + OWN_SHARD_COST * (num_ranks > 1)


def _slowest(links: Iterable[LinkTime]) -> Floats:
    return reduce(np.maximum, (link.s_per_byte for link in links))


def _sum(seconds: Iterable[Floats]) -> Floats | float:
    total: Floats | float = 0.0
    for each in seconds:
        total = total + each
    return total
