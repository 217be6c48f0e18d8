"""Rules of collectives, and the environment variables that make NCCL follow a layout's choice.

On GPUs a layout asks NCCL, of every group of ranks; on cores rings, trees and two levels are our own over gloo's sends
(``trials.collectives``), for what data-parallel ranks exchange.
"""

from __future__ import annotations

from autotuner.core.choices import (
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    GradientSync,
    RankPlacement,
)
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.placement import Spread, replicate_spreads, shard_spread
from autotuner.core.rules.exchange import num_gradients
from autotuner.core.rules.rule import Rule, any_of

_NCCL_ALGORITHMS = {
    CollectiveAlgorithm.RING: "ring",
    CollectiveAlgorithm.TREE: "tree",
    CollectiveAlgorithm.NVLS: "nvls,nvlstree",  # inside a node, and where a group lies on several
    CollectiveAlgorithm.COLLNET: "collnetdirect,collnetchain,ring",  # a group inside a node has only the last
}
"""Names of NCCL 2.24 and later, which also lets one function be named, so that gathers stay free."""


def collective_environment(layout: Layout) -> dict[str, str]:
    """The variables by which NCCL communicates as the layout says, read when the process group starts.

    What is left to NCCL sets none, so that an operator's own variables hold.
    """
    variables: dict[str, str] = {}
    if layout.collective_algorithm != CollectiveAlgorithm.AUTO:
        variables["NCCL_ALGO"] = f"allreduce:{_NCCL_ALGORITHMS[layout.collective_algorithm]}"
    if layout.collective_protocol != CollectiveProtocol.AUTO:
        variables["NCCL_PROTO"] = layout.collective_protocol.label
    if layout.collective_channels:
        variables |= dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), str(layout.collective_channels))
    if layout.collective_algorithm == CollectiveAlgorithm.COLLNET:
        variables["NCCL_COLLNET_ENABLE"] = "1"  # off unless it is asked for
    if not layout.pxn:
        variables["NCCL_PXN_DISABLE"] = "1"
    if layout.queue_pairs > 1:
        variables["NCCL_IB_QPS_PER_CONNECTION"] = str(layout.queue_pairs)
        variables["NCCL_IB_SPLIT_DATA_ON_QPS"] = "1"  # since 2.20 whole messages take them in turn
    return variables


_FLAGGED = (CollectiveProtocol.LL, CollectiveProtocol.LL128)
"""Protocols that send a flag with the data."""

_BY_SWITCHES = (CollectiveAlgorithm.NVLS, CollectiveAlgorithm.COLLNET)
"""Algorithms whose sums are taken by switches, of a node or of the network."""

_LEAST_NVLINK_BYTES_PER_S = 100e9
"""A GPU's NVLink has 150 GB/s one way or more, and PCIe 63 (catalog/links.toml): LL128 counts on NVLink's stores."""

_MOST_CHANNELS = 64
"""NCCL's MAXCHANNELS (src/include/device.h, 2.28)."""

_MOST_QUEUE_PAIRS = 128
"""NCCL_IB_MAX_QPS (src/transport/net_ib.cc, 2.28)."""


# ---------------------------------------------------------------- what a cluster has
def _has_cores(j: Job) -> bool:
    return j.cluster.accelerator.kind == "cpu"


def _has_nvlink(j: Job) -> bool:
    return j.cluster.intra_node_link.bandwidth_bytes_per_s >= _LEAST_NVLINK_BYTES_PER_S


def _is_one_domain(j: Job) -> bool:
    """Whether NVLink, or a node, joins all accelerators: no byte passes the network."""
    return j.cluster.world_size <= j.cluster.accelerators_per_domain


def _network_adds(j: Job) -> bool:
    """Whether there are nodes, and switches between them that add what passes."""
    return j.cluster.network is not None and j.cluster.network.adds and not _is_one_domain(j)


def _relays(j: Job) -> bool:
    """Whether a message to another rail can go to its accelerator over NVLink first."""
    has_rails = j.cluster.network is not None and j.cluster.network.num_rails > 1
    return has_rails and _has_nvlink(j) and not _is_one_domain(j)


def _places_otherwise(j: Job) -> bool:
    """Whether dealing ranks one to each node in turn differs from filling the nodes."""
    return j.cluster.num_nodes > 1 and j.cluster.accelerators_per_node > 1


# ---------------------------------------------------------------- where the ranks of a group lie
def _crosses(x: Layout, spread: Spread, j: Job) -> bool:
    """Whether some group of an axis lies on several nodes."""
    dealt = (spread.num_ranks > 1) & (spread.stride % j.cluster.num_nodes != 0)
    filled = j.cluster.crosses_nodes(*spread)
    return _by_placement(x, filled, dealt)


def _shares(x: Layout, spread: Spread, j: Job) -> bool:
    """Whether two ranks of some group may lie on one node.

    Of ranks that are dealt in turn it is enough that a group goes round all nodes: those of 3 nodes, two apart, share
    one from the fourth on, and are taken for sharing one from the third.
    """
    num_ranks, stride = spread
    dealt = (num_ranks > 1) & ((num_ranks - 1) * stride >= j.cluster.num_nodes)
    filled = (num_ranks > 1) & (2 * stride <= j.cluster.accelerators_per_domain)
    return _by_placement(x, filled, dealt)


def _by_placement(x: Layout, filled: bool, dealt: bool) -> bool:
    is_dealt = x.rank_placement == RankPlacement.CYCLIC
    return (filled & (is_dealt == 0)) | (dealt & is_dealt)


def _has_two_levels(x: Layout, j: Job) -> bool:
    """Whether replicas that sum gradients, or shards, lie on several nodes and several to a node."""
    replicas, joined = replicate_spreads(x)
    shards = shard_spread(x)
    crosses = _crosses(x, replicas, j) | _crosses(x, joined, j)
    shares = _shares(x, replicas, j) | _shares(x, joined, j)
    sum_all = x.gradient_sync == GradientSync.FULL
    split = x.data_parallel_shard_degree > 1
    return (
        (sum_all & crosses & shares)
        | (_crosses(x, joined, j) & _shares(x, joined, j))
        | (split & _crosses(x, shards, j) & _shares(x, shards, j))
    )


# ---------------------------------------------------------------- rules that several fields share
def _needs_ranks(field: str) -> Rule:
    """What NCCL is asked means nothing where there is one rank."""
    default = OPTIONS[field].default
    return Rule(
        f"{field.replace('_', '-')}-needs-ranks",
        field,
        lambda x, j: (getattr(x, field) != default) & (x.world_size == 1),
        lambda x, j: "one rank has no other to communicate with",
        lambda x, j: OPTIONS[field].to_plain(default),
        is_idle=True,
    )


def _needs_nccl(field: str) -> Rule:
    """A choice that NCCL offers."""
    default = OPTIONS[field].default
    return Rule(
        f"{field.replace('_', '-')}-on-hardware",
        field,
        lambda x, j: (getattr(x, field) != default) & _has_cores(j),
        lambda x, j: f"{j.cluster.accelerator.name} communicates by gloo, which has no such choice; NCCL on GPUs has",
        lambda x, j: OPTIONS[field].to_plain(default),
        is_of_hardware=True,
    )


def _runs_simple(algorithm: CollectiveAlgorithm) -> Rule:
    """Switches that add have no protocol with flags."""
    return Rule(
        f"{algorithm.label}-runs-simple",
        "collective_protocol",
        lambda x, j: (x.collective_algorithm == algorithm) & any_of(x.collective_protocol, _FLAGGED),
        lambda x, j: f"switches add plain numbers, without the flags that {x.collective_protocol} sends among them",
        lambda x, j: CollectiveProtocol.SIMPLE.label,
    )


COLLECTIVE_RULES: tuple[Rule, ...] = (
    _needs_ranks("collective_algorithm"),
    _needs_ranks("collective_protocol"),
    _needs_ranks("collective_channels"),
    Rule(
        "collective-algorithm-on-hardware",
        "collective_algorithm",
        lambda x, j: any_of(x.collective_algorithm, _BY_SWITCHES) & _has_cores(j),
        lambda x, j: (
            f"{j.cluster.accelerator.name} communicates by gloo, over rings and trees; NCCL on GPUs has "
            f"{x.collective_algorithm}"
        ),
        lambda x, j: CollectiveAlgorithm.TREE.label,
        is_of_hardware=True,
    ),
    Rule(
        "collective-algorithm-needs-summed-gradients",
        "collective_algorithm",
        lambda x, j: (x.collective_algorithm != CollectiveAlgorithm.AUTO) & (num_gradients(x) == 1) & _has_cores(j),
        lambda x, j: "on cores it is the sum of gradients that goes by ring or tree, and no two ranks sum theirs",
        lambda x, j: CollectiveAlgorithm.AUTO.label,
        is_idle=True,
    ),
    _needs_nccl("collective_protocol"),
    _needs_nccl("collective_channels"),
    Rule(
        "nvls-needs-switches-that-add",
        "collective_algorithm",
        lambda x, j: (
            (x.collective_algorithm == CollectiveAlgorithm.NVLS)
            & (not _has_cores(j))
            & (j.cluster.intra_node_link.multicast_efficiency == 0)
        ),
        lambda x, j: f"{j.cluster.intra_node_link.name} has no switches that copy and add (NVLink SHARP)",
        lambda x, j: CollectiveAlgorithm.AUTO.label,
        is_of_hardware=True,
    ),
    _runs_simple(CollectiveAlgorithm.NVLS),
    Rule(
        "collnet-needs-network-that-adds",
        "collective_algorithm",
        lambda x, j: (
            (x.collective_algorithm == CollectiveAlgorithm.COLLNET) & (not _has_cores(j)) & (not _network_adds(j))
        ),
        lambda x, j: (
            "no network lies between ranks of one node"
            if _is_one_domain(j)
            else "the cluster's network has no switches that add (InfiniBand SHARP: network.adds)"
        ),
        lambda x, j: CollectiveAlgorithm.AUTO.label,
        is_of_hardware=True,
    ),
    _runs_simple(CollectiveAlgorithm.COLLNET),
    Rule(
        "ll128-needs-nvlink",
        "collective_protocol",
        lambda x, j: (x.collective_protocol == CollectiveProtocol.LL128) & (not _has_cores(j)) & (not _has_nvlink(j)),
        lambda x, j: f"128 bytes may arrive in parts over {j.cluster.intra_node_link.name}, and in one over NVLink",
        lambda x, j: CollectiveProtocol.SIMPLE.label,
        is_of_hardware=True,
    ),
    Rule(
        "collective-channels-there-are",
        "collective_channels",
        lambda x, j: x.collective_channels > _MOST_CHANNELS,
        lambda x, j: f"NCCL has {_MOST_CHANNELS} channels, not {x.collective_channels}",
        lambda x, j: _MOST_CHANNELS,
    ),
    Rule(
        "two-level-needs-two-levels",
        "collective_hierarchy",
        lambda x, j: (x.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL) & (_has_two_levels(x, j) == 0),
        lambda x, j: "no data-parallel ranks lie several to a node and on several nodes: one level is all there is",
        lambda x, j: CollectiveHierarchy.FLAT.label,
        is_idle=True,
    ),
    Rule(
        "rank-placement-needs-nodes",
        "rank_placement",
        lambda x, j: (x.rank_placement != RankPlacement.BLOCK) & (not _places_otherwise(j)),
        lambda x, j: (
            f"on {j.cluster.num_nodes} node(s) of {j.cluster.accelerators_per_node} accelerator(s) every rank has its "
            "place already"
        ),
        lambda x, j: RankPlacement.BLOCK.label,
        is_idle=True,
    ),
    Rule(
        "cyclic-placement-parts-tensor-ranks",
        "rank_placement",
        lambda x, j: (
            (x.rank_placement == RankPlacement.CYCLIC) & (x.tensor_parallel_degree > 1) & (not _is_one_domain(j))
        ),
        lambda x, j: (
            f"{x.tensor_parallel_degree} tensor ranks, neighbours by number, would lie on different nodes, and meet "
            "in every layer"
        ),
        lambda x, j: RankPlacement.BLOCK.label,
    ),
    _needs_nccl("pxn"),
    Rule(
        "pxn-needs-rails",
        "pxn",
        lambda x, j: (x.pxn == 0) & (not _has_cores(j)) & (not _relays(j)),
        lambda x, j: (
            f"NCCL relays over NVLink, and {j.cluster.intra_node_link.name} is none"
            if not _has_nvlink(j)
            else "no network with rails lies between the ranks, so that no port is the wrong one"
        ),
        lambda x, j: True,
        is_idle=True,
    ),
    _needs_nccl("queue_pairs"),
    Rule(
        "queue-pairs-need-network",
        "queue_pairs",
        lambda x, j: (x.queue_pairs > 1) & (not _has_cores(j)) & _is_one_domain(j),
        lambda x, j: f"{j.cluster.intra_node_link.name} joins all ranks; none sends over a network",
        lambda x, j: 1,
        is_idle=True,
    ),
    Rule(
        "queue-pairs-there-are",
        "queue_pairs",
        lambda x, j: x.queue_pairs > _MOST_QUEUE_PAIRS,
        lambda x, j: f"NCCL opens {_MOST_QUEUE_PAIRS} queue pairs per connection at most, not {x.queue_pairs}",
        lambda x, j: _MOST_QUEUE_PAIRS,
    ),
)
