"""Groups of ranks that communicate: where they lie, and what a step and a byte cost them.

Ring volumes after Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005);
how latency splits between links inside and between nodes after NCCL's tuning model (src/graph/tuning.cc). The constants
of the links are in catalog/links.toml, those of the algorithms here; ``bench/fit_links.py`` prints their error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.costmodel.communication.slow_links import SlowLinks, slow_of
from autotuner.domain.jobs import crossings
from autotuner.domain.jobs.cluster import Cluster, Link
from autotuner.domain.jobs.crossings import Spread, pair_crosses, ring_crosses
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import RankOrder
from autotuner.domain.layouts.layout import Layout

__all__ = [
    "Group",
    "context_group",
    "exchange_group",
    "expert_group",
    "expert_shard_group",
    "group_of",
    "pipeline_group",
    "replicate_group",
    "shard_group",
    "tensor_group",
]

OWN_SHARD_COST = 0.25
"""Cost of a rank's own shard, which it reads and writes but does not send, relative to one that it sends.

Why few ranks see less bandwidth than many: 2 of 8 A100 reach 0.73 of what 8 do in an all-gather, 0.86 in an all-reduce.
Fits to 2 to 8 ranks are as good with 0.2 as with 0.4: the median error on A100 moves from 7 to 8 %, on H100 not at all.
"""

MULTICAST_S = 25e-6
"""Latency of NVLink SHARP: NCCL 2.28 src/graph/tuning.cc (NVLS, Simple)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Group:
    """Groups of ranks, one row per layout, and what they communicate over.

    Attributes:
        num_ranks: Ranks of one group.
        ranks_per_node: Ranks of the group that share a node, or an NVLink domain of several nodes, which is called a
            node here too; each brings its own network port.
        crosses_nodes: The group lies on more than one of them.
        intra_node_link: Between ranks of one of them.
        inter_node_link: From a rank to the network: its own port.
        oversubscription: Factor by which the network's core is thinner than its ports.
        layouts: Whose groups they are, for what a layout asks of the library; None: nothing.
        slow: What ails the links that they reach over; None: nothing.
    """

    num_ranks: Integers
    ranks_per_node: Integers
    crosses_nodes: Booleans
    intra_node_link: Link
    inter_node_link: Link
    oversubscription: float
    layouts: LayoutColumns | None = None
    slow: SlowLinks | None = None

    @cached_property
    def num_nodes(self) -> Integers:
        """Nodes that one group lies on."""
        return -(-self.num_ranks // self.ranks_per_node)

    # ------------------------------------------------------------ seconds before and between the bytes
    @cached_property
    def start_s(self) -> Floats:
        """Seconds before the first step; nothing for one rank alone."""
        return np.where(self.num_ranks > 1, self.intra_node_link.start_s, 0.0)

    @cached_property
    def ramp_s(self) -> Floats:
        """Seconds that a long message takes to fill the slowest link."""
        return np.where(self.crosses_nodes, self.inter_node_link.ramp_s * self._slowdown, self.intra_node_link.ramp_s)

    @cached_property
    def step_s(self) -> Floats:
        """Latency of one step over the slowest link."""
        return np.where(self.crosses_nodes, self._port_step_s, self.intra_node_link.latency_s) + self._delay_s

    @cached_property
    def ring_latency_s(self) -> Floats:
        """Latency once around the ring: ``num_ranks - 1`` steps, one of which leaves the node for each other node.

        A late link is late in every step, since each rank passes on in one what it got in the one before.
        """
        between = self.num_nodes - 1
        healthy_s: Floats = (
            between * self._port_step_s + (self.num_ranks - 1 - between) * self.intra_node_link.latency_s
        )
        return healthy_s + (self.num_ranks - 1) * self._delay_s

    @cached_property
    def tree_latency_s(self) -> Floats:
        """Latency up and down a tree: through a node's ranks in turn, or its switches at once; then between nodes."""
        link = self.intra_node_link
        steps = self.ranks_per_node > 1 if link.multicast_efficiency else 2 * (self.ranks_per_node - 1)
        inside = steps * (MULTICAST_S if link.multicast_efficiency else link.latency_s)
        late_s = 2 * np.ceil(np.log2(self.num_ranks)) * self._delay_s
        return inside + 2 * np.ceil(np.log2(self.num_nodes)) * self._port_step_s + late_s

    # ------------------------------------------------------------ seconds per byte, in long messages
    @cached_property
    def send_s_per_byte(self) -> Floats:
        """Seconds per byte from one rank to another over the slowest link."""
        inside = self._unshared_s_per_byte * self._parts(2) * self._slower_inside
        return np.where(self.crosses_nodes, self._port_s_per_byte, inside)

    @cached_property
    def ring_s_per_byte(self) -> Floats:
        """Seconds per byte once around the ring; between nodes the ports of all its ranks there work side by side."""
        inside = _passed_shards(self.num_ranks) * self._intra_s_per_byte
        between = (self.num_ranks - 1) / self.ranks_per_node * self._port_s_per_byte
        slower: Floats = np.maximum(inside, np.where(self.crosses_nodes, between, 0.0))
        return slower / self.num_ranks

    @cached_property
    def tree_s_per_byte(self) -> Floats:
        """Seconds per byte up and down the tree: the slower of the way inside the nodes and the way between them.

        Switches that add pass 1 + 1 / n of the bytes over each link, every rank's bytes once and the sum's shards,
        against 2 (n - 1) / n in a ring. Between nodes the ranks of a node share what it sends: the bytes up once and
        down once, half of them in each of two trees (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
        broadcast, reduction and scan", 2009). Where switches add, two nodes just swap their sums: 362 GB/s on 2 nodes
        of H100, where an all-gather has 185 (Ultra-Scale Playbook). 2 nodes of A100 show no such gain, 45 GB/s of all
        ports against 8 of one (Hetu-Galvatron).
        """
        ranks, link = self.ranks_per_node, self.intra_node_link
        inside = 2 * _passed_shards(ranks) / ranks * self._intra_s_per_byte
        times_sent = 2 * (self.num_nodes > 1)
        if link.multicast_efficiency:
            switched = (1 + 1 / ranks) / (link.multicast_efficiency * link.bandwidth_bytes_per_s)
            inside = np.minimum(inside, switched * self._slower_inside)
            times_sent = np.minimum(self.num_nodes - 1, 2)
        return np.maximum(inside, times_sent / ranks * self._port_s_per_byte)

    def all_to_all_s_per_byte(self, outside: Floats | float = 1.0) -> Floats:
        """Seconds per byte that a rank sends in equal shares to all; both kinds of link work at the same time.

        Of the bytes for other nodes the share ``outside`` leaves the node; what stands for several ranks there is
        passed on over the links inside.
        """
        beyond = self.num_ranks - self.ranks_per_node
        passed_on = beyond * np.where(np.asarray(outside) < 1, 1.0, 0.0)
        inside = (_passed_shards(self.ranks_per_node) + passed_on) * self._intra_s_per_byte
        slower: Floats = np.maximum(inside, beyond * outside * self._port_s_per_byte)
        return slower / self.num_ranks

    # ------------------------------------------------------------ links as collectives find them
    @cached_property
    def _slowdown(self) -> Floats | float:
        exponent = self.inter_node_link.congestion
        return self.num_nodes.astype(np.float64) ** exponent if exponent else 1.0

    @property
    def _port_step_s(self) -> Floats | float:
        return self.inter_node_link.latency_s * self._slowdown

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
    def _slower_inside(self) -> Floats | float:
        """Slowdown of links inside a node, where a group reaches over no other."""
        return 1.0 if self.slow is None else np.where(self.crosses_nodes, 1.0, self.slow.slowdown)

    @property
    def _unshared_s_per_byte(self) -> float:
        return 1 / (self.intra_node_link.efficiency * self.intra_node_link.bandwidth_bytes_per_s)

    def _parts(self, num_ranks: Integers | int) -> Floats | float:
        """The link's bandwidth over what so many ranks have of it: all behind a switch, a part in a mesh."""
        peers = self.intra_node_link.mesh_peers
        return peers / np.clip(num_ranks - 1, 1, peers) if peers else 1.0


def _passed_shards(num_ranks: Integers) -> Floats:
    """Shards of 1 / n that pass a rank once around the ring: n - 1 that it sends, and its own; none if it is alone."""
    return num_ranks - 1 + OWN_SHARD_COST * (num_ranks > 1)


def group_of(num_ranks: Integers, stride: Integers, cluster: Cluster, layouts: LayoutColumns | None = None) -> Group:
    """Groups of ``num_ranks`` ranks that lie ``stride`` apart; crosses nodes where the cluster says so.

    A group that would fit into a node, but straddles the border of two, has as few ranks on one side as the steps in
    which the border wanders through such groups.
    """
    crosses = cluster.crosses_nodes(num_ranks, stride)
    domain = cluster.accelerators_per_domain
    neighbours = np.where(num_ranks * stride > domain, domain, np.gcd(domain, num_ranks * stride))
    return Group(
        num_ranks=num_ranks,
        ranks_per_node=np.where(crosses, np.clip(neighbours // stride, 1, num_ranks), num_ranks),
        crosses_nodes=crosses,
        intra_node_link=cluster.intra_node_link,
        inter_node_link=cluster.inter_node_link,
        oversubscription=cluster.oversubscription,
        layouts=layouts,
    )


# ---------------------------------------------------------------- the groups of a layout, by Layout's rank order
def tensor_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Tensor ranks: neighbours."""
    return _ring(x, cluster, crossings.tensor_spread(_one(x)))


def context_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Context ranks: one rank of each tensor group that shares a sequence."""
    return _ring(x, cluster, crossings.context_spread(_one(x)))


def shard_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Shard ranks, which split parameters: shard and context ranks together."""
    return _ring(x, cluster, crossings.shard_spread(_one(x)))


def replicate_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Replicate ranks, which hold the same shard; where nothing is sharded, context ranks are replicas too."""
    replicas, joined = crossings.replicate_spreads(_one(x))
    num_ranks, stride = _column(replicas.num_ranks), _column(replicas.stride)
    num_joined = _column(joined.num_ranks)
    inner = np.where(x.data_parallel_shard_degree == 1, joined.stride, stride)
    whole = group_of(num_ranks * num_joined, inner, cluster, x)
    if x.rank_order.any():  # stages lie between replicas, whose context ranks still lie side by side
        apart, swapped = group_of(num_ranks, stride, cluster, x), x.rank_order == RankOrder.REPLICAS_OUTERMOST
        whole = replace(
            whole,
            ranks_per_node=np.where(swapped, apart.ranks_per_node * num_joined, whole.ranks_per_node),
            crosses_nodes=np.where(swapped, apart.crosses_nodes, whole.crosses_nodes),
        )
    return replace(whole, slow=slow_of(x, cluster, ring_crosses, replicas, joined))


def exchange_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Replicas that hold the same shard, one context rank of each: what a lossy exchange is among."""
    replicas, _ = crossings.replicate_spreads(_one(x))
    return _ring(x, cluster, replicas)


def expert_group(x: LayoutColumns, job: Job) -> Group:
    """Expert ranks: the innermost of the context and shard ranks, and of the tensor ranks unless these split experts.

    Megatron-LM core 0.13, parallel_state.py: expert ranks are numbered tensor-expert-data-pipeline.
    """
    spread = crossings.expert_spread(_one(x), job)
    group = group_of(_column(spread.num_ranks), _column(spread.stride), job.cluster, x)
    return replace(group, slow=slow_of(x, job.cluster, pair_crosses, spread))


def expert_shard_group(x: LayoutColumns, job: Job) -> Group:
    """Shard ranks that hold the same experts: what expert ranks leave of tensor, context and shard ranks."""
    return _ring(x, job.cluster, crossings.expert_shard_spread(_one(x), job))


def pipeline_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Pipeline ranks: one rank of every stage; what ails the links between them is told hop by hop (``hops``)."""
    spread = crossings.pipeline_spread(_one(x))
    return group_of(_column(spread.num_ranks), _column(spread.stride), cluster, x)


def _ring(x: LayoutColumns, cluster: Cluster, spread: Spread) -> Group:
    group = group_of(_column(spread.num_ranks), _column(spread.stride), cluster, x)
    return replace(group, slow=slow_of(x, cluster, ring_crosses, spread))


def _one(x: LayoutColumns) -> Layout:
    """Columns, to formulas that are written for one layout with operators that columns have."""
    return cast("Layout", x)


def _column(number: int) -> Integers:
    return cast("Integers", number)
