"""Rules of collectives, and the environment variables with which NCCL follows a layout's choice."""

from __future__ import annotations

from autotuner.core.choices import (
    CollectiveAlgorithm,
    CollectiveProtocol,
    GradientSync,
    RankPlacement,
)
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.placement import Spread, replicate_spreads, shard_spread
from autotuner.core.rules.exchange import num_gradients
from autotuner.core.rules.rule import Limit, Rule, any_of, held, idle, lacking, named, refuse

_NCCL_ALGORITHMS = {
    CollectiveAlgorithm.RING: "ring",
    CollectiveAlgorithm.TREE: "tree",
    CollectiveAlgorithm.NVLS: "nvls,nvlstree",  # for a group inside a node, and for one on several nodes
    CollectiveAlgorithm.COLLNET: "collnetdirect,collnetchain,ring",  # a group inside a node can use only the last one
}
"""Names of algorithms in NCCL 2.24 and later. In these versions a variable can also name the collective, so that
all-gathers can use other algorithms."""


def collective_environment(layout: Layout) -> dict[str, str]:
    """Return the environment variables that make NCCL use the layout's options. NCCL reads them when it starts.

    Options that the layout leaves to NCCL set no variable, so that variables of the operator stay in effect.
    """
    variables: dict[str, str] = {}
    if layout.collective_algorithm != CollectiveAlgorithm.AUTO:
        variables["NCCL_ALGO"] = f"allreduce:{_NCCL_ALGORITHMS[layout.collective_algorithm]}"
    if layout.collective_protocol != CollectiveProtocol.AUTO:
        variables["NCCL_PROTO"] = layout.collective_protocol.label
    if layout.collective_channels:
        variables |= dict.fromkeys(("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), str(layout.collective_channels))
    if layout.collective_algorithm == CollectiveAlgorithm.COLLNET:
        variables["NCCL_COLLNET_ENABLE"] = "1"  # off by default in NCCL
    if not layout.pxn:
        variables["NCCL_PXN_DISABLE"] = "1"
    if layout.queue_pairs > 1:
        variables["NCCL_IB_QPS_PER_CONNECTION"] = str(layout.queue_pairs)
        variables["NCCL_IB_SPLIT_DATA_ON_QPS"] = "1"  # since NCCL 2.20, whole messages use the queue pairs in turn
    return variables


_FLAGGED = (CollectiveProtocol.LL, CollectiveProtocol.LL128)
"""Protocols that send a flag together with the data."""

_BY_SWITCHES = (CollectiveAlgorithm.NVLS, CollectiveAlgorithm.COLLNET)
"""Algorithms in which the switches of a node or of the network compute the sums."""

_LEAST_NVLINK_BYTES_PER_S = 100e9
"""Smallest bandwidth of a GPU's NVLink. NVLink has 150 GB/s or more in one direction, PCIe has 63 (catalog/links.toml).
The protocol LL128 needs NVLink."""

_MOST_CHANNELS = 64
"""Largest number of channels in NCCL: MAXCHANNELS (src/include/device.h, 2.28)."""

_MOST_QUEUE_PAIRS = 128
"""Largest number of queue pairs in NCCL: NCCL_IB_MAX_QPS (src/transport/net_ib.cc, 2.28)."""


# ---------------------------------------------------------------- what a cluster has
def _has_cores(j: Job) -> bool:
    return j.cluster.accelerator.kind == "cpu"


def _has_nvlink(j: Job) -> bool:
    return j.cluster.intra_node_link.bandwidth_bytes_per_s >= _LEAST_NVLINK_BYTES_PER_S


def _is_one_domain(j: Job) -> bool:
    """Return True if NVLink, or one node, joins all accelerators, so that no data passes the network."""
    return j.cluster.world_size <= j.cluster.accelerators_per_domain


def _network_adds(j: Job) -> bool:
    """Return True if the cluster has several nodes, and switches between them that add the data that passes."""
    return j.cluster.network is not None and j.cluster.network.adds and not _is_one_domain(j)


def _relays(j: Job) -> bool:
    """Return True if a message to another rail can first go over NVLink to the accelerator on that rail."""
    has_rails = j.cluster.network is not None and j.cluster.network.num_rails > 1
    return has_rails and _has_nvlink(j) and not _is_one_domain(j)


# ---------------------------------------------------------------- where the ranks of a group lie
def _crosses(x: Layout, spread: Spread, j: Job) -> bool:
    """Return True if some group of an axis has ranks on several nodes."""
    cyclic = (spread.num_ranks > 1) & (spread.stride % j.cluster.num_nodes != 0)
    filled = j.cluster.crosses_nodes(*spread)
    return _by_placement(x, filled, cyclic)


def _shares(x: Layout, spread: Spread, j: Job) -> bool:
    """Return True if two ranks of some group may lie on one node.

    With cyclic placement, this function returns True once a group has passed all nodes. That is slightly too early in
    some cases: on 3 nodes, with ranks two apart, a group of four has two ranks on one node, but this function already
    returns True for a group of three.
    """
    num_ranks, stride = spread
    cyclic = (num_ranks > 1) & ((num_ranks - 1) * stride >= j.cluster.num_nodes)
    filled = (num_ranks > 1) & (2 * stride <= j.cluster.accelerators_per_domain)
    return _by_placement(x, filled, cyclic)


def _by_placement(x: Layout, filled: bool, cyclic: bool) -> bool:
    is_cyclic = x.rank_placement == RankPlacement.CYCLIC
    return (filled & (is_cyclic == 0)) | (cyclic & is_cyclic)


def _has_two_levels(x: Layout, j: Job) -> bool:
    """Return True if replicas that sum gradients, or shards, are on several nodes with several ranks on each."""
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
def _needs_ranks(field: str) -> Limit:
    """Return the rule that an option of NCCL keeps its default with a single rank, where it has no effect."""
    return idle(
        field,
        "the layout has only one rank, which has no other rank to communicate with, so this option has no effect",
        lambda x, j: x.world_size == 1,
    )


def _needs_nccl(field: str) -> Limit:
    """Return the rule that a value which only NCCL offers needs accelerators with NCCL."""
    message = (
        "this is an option of NCCL, which runs only on GPUs; {j.cluster.accelerator.name} communicates with "
        "the library gloo"
    )
    return lacking(field, message, lambda x, j: _has_cores(j))


def _runs_simple(algorithm: CollectiveAlgorithm) -> Limit:
    """Return the rule that an algorithm whose switches compute the sums uses a protocol without flags."""
    return refuse(
        "collective_protocol",
        lambda x, j: (x.collective_algorithm == algorithm) & any_of(x.collective_protocol, _FLAGGED),
        "with the algorithm {x.collective_algorithm}, switches add plain numbers, but the protocol "
        "{x.collective_protocol} sends flags between the numbers",
        CollectiveProtocol.SIMPLE,
    )


COLLECTIVE_RULES: tuple[Rule, ...] = named(
    {
        "collective-algorithm-needs-ranks": _needs_ranks("collective_algorithm"),
        "collective-protocol-needs-ranks": _needs_ranks("collective_protocol"),
        "collective-channels-needs-ranks": _needs_ranks("collective_channels"),
        "collective-algorithm-on-hardware": refuse(
            "collective_algorithm",
            lambda x, j: any_of(x.collective_algorithm, _BY_SWITCHES) & _has_cores(j),
            "{j.cluster.accelerator.name} communicates with the library gloo, which has only the algorithms ring and "
            "tree; {x.collective_algorithm} needs NCCL on GPUs",
            CollectiveAlgorithm.TREE,
            is_of_hardware=True,
        ),
        "collective-algorithm-needs-summed-gradients": idle(
            "collective_algorithm",
            "on CPUs this option changes only the sum of gradients, and no two ranks of this layout sum their "
            "gradients",
            lambda x, j: (num_gradients(x) == 1) & _has_cores(j),
        ),
        "collective-protocol-on-hardware": _needs_nccl("collective_protocol"),
        "collective-channels-on-hardware": _needs_nccl("collective_channels"),
        "nvls-needs-switches-that-add": refuse(
            "collective_algorithm",
            lambda x, j: (
                (x.collective_algorithm == CollectiveAlgorithm.NVLS)
                & (not _has_cores(j))
                & (j.cluster.intra_node_link.multicast_efficiency == 0)
            ),
            "NVLS needs switches that copy and add data (NVLink SHARP), and {j.cluster.intra_node_link.name} has none",
            CollectiveAlgorithm.AUTO,
            is_of_hardware=True,
        ),
        "nvls-runs-simple": _runs_simple(CollectiveAlgorithm.NVLS),
        "collnet-needs-network-that-adds": refuse(
            "collective_algorithm",
            lambda x, j: (
                (x.collective_algorithm == CollectiveAlgorithm.COLLNET) & (not _has_cores(j)) & (not _network_adds(j))
            ),
            lambda x, j: (
                "CollNet needs a network between the ranks, and one node or NVLink joins all accelerators of "
                "this cluster"
                if _is_one_domain(j)
                else (
                    "CollNet needs network switches that add data (InfiniBand SHARP), and the field network.adds is "
                    "not true for this cluster"
                )
            ),
            CollectiveAlgorithm.AUTO,
            is_of_hardware=True,
        ),
        "collnet-runs-simple": _runs_simple(CollectiveAlgorithm.COLLNET),
        "ll128-needs-nvlink": refuse(
            "collective_protocol",
            lambda x, j: (
                (x.collective_protocol == CollectiveProtocol.LL128) & (not _has_cores(j)) & (not _has_nvlink(j))
            ),
            "the protocol ll128 needs NVLink, over which 128 bytes arrive together; over "
            "{j.cluster.intra_node_link.name} they may arrive in parts",
            CollectiveProtocol.SIMPLE,
            is_of_hardware=True,
        ),
        "collective-channels-there-are": refuse(
            "collective_channels",
            lambda x, j: x.collective_channels > _MOST_CHANNELS,
            f"NCCL has at most {_MOST_CHANNELS} channels, not {{x.collective_channels}}",
            _MOST_CHANNELS,
        ),
        "two-level-needs-two-levels": idle(
            "collective_hierarchy",
            "a hierarchy of two levels needs a data-parallel group that has ranks on several nodes and several ranks "
            "on each of them, and this layout has no such group",
            lambda x, j: _has_two_levels(x, j) == 0,
        ),
        "rank-placement-needs-nodes": idle(
            "rank_placement",
            "on {j.cluster.num_nodes} node(s) of {j.cluster.accelerators_per_node} accelerator(s) "
            "each, every placement of the ranks is the same",
            lambda x, j: j.cluster.num_nodes == 1 or j.cluster.accelerators_per_node == 1,
        ),
        "cyclic-placement-parts-tensor-ranks": held(
            "rank_placement",
            RankPlacement.BLOCK,
            "cyclic placement would put the {x.tensor_parallel_degree} ranks of a tensor group on different nodes, "
            "although they communicate in every layer",
            lambda x, j: (x.tensor_parallel_degree > 1) & (not _is_one_domain(j)),
        ),
        "pxn-on-hardware": _needs_nccl("pxn"),
        "pxn-needs-rails": idle(
            "pxn",
            lambda x, j: (
                "PXN sends data through another GPU over NVLink, and the accelerators of a node are joined by "
                f"{j.cluster.intra_node_link.name}, so this option has no effect"
                if not _has_nvlink(j)
                else "PXN has an effect only if a network with two or more rails joins the nodes"
            ),
            lambda x, j: not _has_cores(j) and not _relays(j),
        ),
        "queue-pairs-on-hardware": _needs_nccl("queue_pairs"),
        "queue-pairs-need-network": idle(
            "queue_pairs",
            "{j.cluster.intra_node_link.name} joins all ranks, so no rank sends data over a network, and the "
            "number of queue pairs has no effect",
            lambda x, j: not _has_cores(j) and _is_one_domain(j),
        ),
        "queue-pairs-there-are": refuse(
            "queue_pairs",
            lambda x, j: x.queue_pairs > _MOST_QUEUE_PAIRS,
            f"NCCL opens at most {_MOST_QUEUE_PAIRS} queue pairs per connection, not {{x.queue_pairs}}",
            _MOST_QUEUE_PAIRS,
        ),
    }
)
