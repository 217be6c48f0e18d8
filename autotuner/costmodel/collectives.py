"""Wire time of collectives: rings with a bandwidth and a latency per step (the alpha-beta model).

Ring volumes after Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005);
how the latency of a ring splits between links inside and between nodes after NCCL's tuning model
(src/graph/tuning.cc). All times are what the wire needs; what computation hides is in ``overlap``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.domain.cluster import Cluster

__all__ = [
    "Group",
    "all_gather_s",
    "all_reduce_s",
    "all_to_all_s",
    "context_group",
    "expert_group",
    "group_of",
    "pipeline_group",
    "reduce_scatter_s",
    "replicate_group",
    "send_s",
    "shard_group",
    "tensor_group",
]

LINK_EFFICIENCY = 0.8
"""Share of a link's stated rate that large collectives reach.

Between 0.74 (A100, NVLink 3: 222 of 300 GB/s) and 0.92 (32 ranks on 100 GB/s per node) of ring all-reduces of 0.5 GB
and more; nccl-tests results of VIA-Research/vTrain, ai-dynamo/aiconfigurator and stas00/ml-engineering, read 2026-11.
NVLink SHARP does better (445 of 450 GB/s on H100) and is not modelled.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Groups of ranks, one row per layout, and what they communicate over.

    Attributes:
        num_ranks: Ranks of one group.
        ranks_per_node: Of these, how many share a node; each brings its own network port.
        crosses_nodes: The group lies on more than one node.
        intra_bandwidth_bytes_per_s: What one rank sends inside its node; one direction.
        inter_bandwidth_bytes_per_s: What one rank sends out of its node, thinned by oversubscription.
    """

    num_ranks: Integers
    ranks_per_node: Integers
    crosses_nodes: Booleans
    intra_bandwidth_bytes_per_s: float
    inter_bandwidth_bytes_per_s: float
    intra_latency_s: float
    inter_latency_s: float

    @property
    def ring_bandwidth_bytes_per_s(self) -> Floats:
        """What a ring through the group carries; between nodes the ports of all its ranks there work side by side."""
        between = np.minimum(self.intra_bandwidth_bytes_per_s, self.ranks_per_node * self.inter_bandwidth_bytes_per_s)
        return np.where(self.crosses_nodes, between, self.intra_bandwidth_bytes_per_s)

    @property
    def round_latency_s(self) -> Floats:
        """Latency of ``num_ranks - 1`` steps, of which as many leave a node as there are other nodes."""
        num_nodes = -(-self.num_ranks // self.ranks_per_node)
        between = np.where(self.crosses_nodes, num_nodes - 1, 0)
        return between * self.inter_latency_s + (self.num_ranks - 1 - between) * self.intra_latency_s


def group_of(num_ranks: Integers, stride: Integers, cluster: Cluster) -> Group:
    """Groups of ``num_ranks`` ranks that lie ``stride`` apart; crosses nodes where the cluster says so."""
    per_node = cluster.accelerators_per_node
    crosses = cluster.crosses_nodes(num_ranks, stride)
    return Group(
        num_ranks=num_ranks,
        ranks_per_node=np.where(crosses, np.clip(per_node // stride, 1, num_ranks), num_ranks),
        crosses_nodes=crosses,
        intra_bandwidth_bytes_per_s=LINK_EFFICIENCY * cluster.intra_node_link.bandwidth_bytes_per_s,
        inter_bandwidth_bytes_per_s=LINK_EFFICIENCY
        * cluster.inter_node_link.bandwidth_bytes_per_s
        / cluster.oversubscription,
        intra_latency_s=cluster.intra_node_link.latency_s,
        inter_latency_s=cluster.inter_node_link.latency_s,
    )


# ---------------------------------------------------------------- the groups of a layout, by Layout's rank order
def tensor_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Neighbours."""
    return group_of(x.tensor_parallel_degree, np.ones_like(x.tensor_parallel_degree), cluster)


def context_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """One rank of each tensor group that shares a sequence."""
    return group_of(x.context_parallel_degree, x.tensor_parallel_degree, cluster)


def shard_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Ranks that split parameters: shard and context ranks together."""
    return group_of(x.data_parallel_shard_degree * x.context_parallel_degree, x.tensor_parallel_degree, cluster)


def replicate_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Ranks that hold the same shard; where nothing is sharded, context ranks are replicas too."""
    joined = np.where(x.data_parallel_shard_degree == 1, x.context_parallel_degree, 1)
    inner = x.tensor_parallel_degree * x.context_parallel_degree * x.data_parallel_shard_degree // joined
    return group_of(x.data_parallel_replicate_degree * joined, inner, cluster)


def expert_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Expert ranks: the innermost of the tensor, context and shard ranks they are taken from."""
    return group_of(x.expert_parallel_degree, np.ones_like(x.expert_parallel_degree), cluster)


def pipeline_group(x: LayoutColumns, cluster: Cluster) -> Group:
    """Outermost: one rank of every stage."""
    stride = x.tensor_parallel_degree * x.context_parallel_degree * x.data_parallel_degree
    return group_of(x.pipeline_parallel_degree, stride, cluster)


# ---------------------------------------------------------------- collectives
def all_gather_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds all ``full_bytes``, each having started with its share; 0 for one rank."""
    volume = full_bytes * (group.num_ranks - 1) / group.num_ranks
    return volume / group.ring_bandwidth_bytes_per_s + group.round_latency_s


def reduce_scatter_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds its share of the sum of ``full_bytes`` of each; the all-gather backwards."""
    return all_gather_s(full_bytes, group)


def all_reduce_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds the sum of ``full_bytes`` of each: 2 (n - 1) / n of the bytes pass each link."""
    return reduce_scatter_s(full_bytes, group) + all_gather_s(full_bytes, group)


def all_to_all_s(sent_bytes: Floats, group: Group) -> Floats:
    """Seconds to send an equal share of ``sent_bytes`` to every rank; both kinds of link work at the same time."""
    inside = sent_bytes * (group.ranks_per_node - 1) / group.num_ranks / group.intra_bandwidth_bytes_per_s
    outside = sent_bytes * (group.num_ranks - group.ranks_per_node) / group.num_ranks
    return np.maximum(inside, outside / group.inter_bandwidth_bytes_per_s) + group.round_latency_s


def send_s(sent_bytes: Floats, group: Group) -> Floats:
    """Seconds to hand ``sent_bytes`` to a neighbour in the group over its slowest link; 0 for one rank."""
    across = sent_bytes / group.inter_bandwidth_bytes_per_s + group.inter_latency_s
    within = sent_bytes / group.intra_bandwidth_bytes_per_s + group.intra_latency_s
    return np.where(group.crosses_nodes, across, within) * (group.num_ranks > 1)
