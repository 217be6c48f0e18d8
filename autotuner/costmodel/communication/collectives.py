"""Time of collectives: by formula, as measured, and on two levels.

The formulas are the alpha-beta model with one more term: a message is cut into chunks that follow each other. With few
chunks the pipeline is empty for long; with many chunks the overhead of a chunk counts often. At the best number both
costs are equal, and together they are ``2 sqrt(ramp * transfer)``, where the ramp is a constant of the link.

Like NCCL, an all-reduce takes the faster of its algorithms at each size. ``research/fit_links.py`` fits the constants
and prints the error of these laws on published benchmarks, in sample and left out. All times are wire times;
``overlap`` computes which part of them is hidden.

A layout may name the algorithm, protocol or channels instead. A named protocol changes the formulas by the difference
to the best protocol in NCCL's own model (src/graph/tuning.cc, 2.8). The fitted latencies are those of LL, which NCCL
uses for short messages, and the fitted bandwidths are those of Simple, which it uses for long messages. So no named
choice is predicted to be faster than NCCL's own choice, except sums in the network's switches, which NCCL uses only if
it is configured to.

On two levels, the ranks of a node first sum among each other, so that each holds a part of the node's sum. Then ranks
with the same part on all nodes sum it. At last the parts are gathered inside the nodes (Jia et al., "Highly scalable
deep learning training system with mixed-precision", 2018, section 4.3). The bytes of a node are sent between nodes only
once, wherever the neighbours in a flat ring are.

On GPUs both levels are NCCL's collectives, one after the other. On CPU cores they are gloo's or our own
(``autotuner.training.two_level``), which process a tensor in pieces: the slower level works all the time, and of the
faster level only one piece is exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, CollectiveProtocol, RankPlacement
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.link import CollectiveKind, Link, MeasuredCollective
from autotuner.core.stages import MOST_PIECES, PIECE_BYTES
from autotuner.costmodel.communication.group import Group, SlowLinks


def without_starts(group: Group) -> Group:
    """Return a copy of the group whose collectives need no time to start: their time is only the time to move bytes.

    Use it where the start times of the collectives are added separately.
    """
    return replace(
        group, intra_node_link=_silent(group.intra_node_link), inter_node_link=_silent(group.inter_node_link)
    )


def _silent(link: Link) -> Link:
    return replace(link, measured=tuple(replace(line, start_s=0.0) for line in link.measured))


def measured_s(kind: CollectiveKind, full_bytes: Floats, group: Group) -> Floats | None:
    """Return the seconds of a collective by measurements of the group's link; None if this kind was never measured.

    A straight line was fitted to the measurements: a start time, plus a time per byte. Groups on several nodes use the
    lines of the network. If the network has no lines, they use the lines of the link inside nodes. Between two measured
    numbers of ranks, both times are interpolated. Beyond the largest measured number, they grow with the number of
    steps of a ring.
    """
    within, across = (_lines(link, kind) for link in (group.intra_node_link, group.inter_node_link))
    if not within:
        return None
    inside_s = _on_lines(within, full_bytes, group)
    seconds = np.where(group.crosses_nodes, _on_lines(across, full_bytes, group), inside_s) if across else inside_s
    if group.network or group.ring is not None:
        seconds = seconds + full_bytes * _routed_s_per_byte(kind, group)
    return seconds if group.slow is None else _slower_s(kind, seconds, full_bytes, group, group.slow)


def _routed_s_per_byte(kind: CollectiveKind, group: Group) -> Floats:
    """Return the additional seconds per byte of cyclic placement or of a described network, by the formulas.

    Measured times of collectives do not contain them, because they were taken between a few nodes that were filled one
    after the other.
    """
    plain = replace(group, network=(), ring=None, relayed=0.0)
    match kind:
        case "send":
            more = group.send_s_per_byte - plain.send_s_per_byte
        case "all_to_all":
            more = group.all_to_all_s_per_byte() - plain.all_to_all_s_per_byte()
        case _:
            rounds = 2 if kind == "all_reduce" else 1
            more = rounds * (group.ring_s_per_byte - plain.ring_s_per_byte)
    return np.maximum(more, 0.0)


def _slower_s(kind: CollectiveKind, timed_s: Floats, full_bytes: Floats, group: Group, slow: SlowLinks) -> Floats:
    """Return the time of a collective on degraded links, from its time on nominal links."""
    rounds = {"all_reduce": 2}.get(kind, 1)
    steps = np.minimum(group.num_ranks - 1, 1) if kind == "send" else rounds * (group.num_ranks - 1)
    across = group.crosses_nodes
    links = group.inter_node_link.bandwidth_bytes_per_s, group.intra_node_link.bandwidth_bytes_per_s
    passed_bytes = full_bytes * steps / (1 if kind == "send" else group.num_ranks)
    least_s = np.where(slow.slowdown > 1, passed_bytes * slow.slowdown / np.where(across, *links), 0.0)
    return np.maximum(timed_s, least_s) + steps * slow.delay_s


def _lines(link: Link, kind: CollectiveKind) -> list[MeasuredCollective]:
    return sorted((line for line in link.measured if line.kind == kind), key=lambda line: line.num_ranks)


def _on_lines(lines: Sequence[MeasuredCollective], full_bytes: Floats, group: Group) -> Floats:
    ranks = [line.num_ranks for line in lines]
    beyond = np.maximum(1.0, (group.num_ranks - 1) / (ranks[-1] - 1))
    start_s = np.interp(group.num_ranks, ranks, [line.start_s for line in lines])
    s_per_byte = np.interp(group.num_ranks, ranks, [line.s_per_byte for line in lines])
    seconds: Floats = np.where(group.num_ranks > 1, beyond * (start_s + full_bytes * s_per_byte), 0.0)
    return seconds


CHANNEL_BYTES_PER_S = 16.7e9
"""Highest rate of one channel: NCCL's cap of an LL128 all-reduce, used for all protocols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Protocols:
    """Seconds that each protocol takes before and between steps, and its slowdown: auto, LL, LL128, Simple.

    Auto uses LL for short messages and Simple for long ones.
    """

    base_s: tuple[float, float, float, float]
    inside_s: tuple[float, float, float, float]
    between_s: tuple[float, float, float, float]
    slowdown: tuple[float, float, float, float]

    def added_s(self, x: LayoutColumns, num_inside: Integers, num_between: Integers) -> Floats:
        """Return the latency that the layouts' protocols add to this number of steps inside nodes and between nodes."""
        base, inside, between = (np.array(s) - s[0] for s in (self.base_s, self.inside_s, self.between_s))
        protocol = x.collective_protocol
        seconds: Floats = base[protocol] + num_inside * inside[protocol] + num_between * between[protocol]
        return np.where(num_inside + num_between > 0, np.maximum(seconds, 0.0), 0.0)


_RING = _Protocols(
    base_s=(3.6e-6, 3.6e-6, 10.0e-6, 8.4e-6),
    inside_s=(0.47e-6, 0.47e-6, 1.9e-6, 3.4e-6),
    between_s=(2.7e-6, 2.7e-6, 4.0e-6, 9.6e-6),
    slowdown=(1.0, 4.0, 1 / 0.92, 1.0),
)
_TREE = _Protocols(
    base_s=(4.4e-6, 4.4e-6, 4.4e-6, 0.0),
    inside_s=(0.52e-6, 0.52e-6, 1.2e-6, 28e-6),
    between_s=(5.0e-6, 5.0e-6, 8.5e-6, 50e-6),
    slowdown=(1.0, 3.8, 1 / 0.9, 1.0),
)
"""Protocols with NVLink inside nodes and a network between them (NCCL 2.8, src/graph/tuning.cc)."""

_GATHER_IN_NODE_LL = 3.0
_RING_LL128_LONE = 1 / 0.7
"""Slowdown factors of rings (same source): of LL for a gather inside a node, and of LL128 if a node holds one rank."""


def all_gather_s(full_bytes: Floats, group: Group) -> Floats:
    """Return the seconds of an all-gather, after which every rank holds all ``full_bytes``; 0 for one rank.

    Each rank starts with its own shard.

    Args:
        full_bytes: Bytes of the whole tensor, of shape (layouts,).
        group: Ranks of each layout, and their links.

    Returns:
        Seconds on the wire, of shape (layouts,). Computation may hide a part of them.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.costmodel.communication.layout_groups import group_of
        >>> group = group_of(np.array([1, 8]), np.array([1, 1]), load_cluster("h100:8"))
        >>> alone_s, among_eight_s = all_gather_s(np.array([1e9, 1e9]), group)
        >>> bool(alone_s == 0.0), bool(among_eight_s > 0.0)
        (True, True)
    """
    timed_s = measured_s("all_gather", full_bytes, group)
    return _ring_s(full_bytes, 1, group) if timed_s is None else timed_s


def reduce_scatter_s(full_bytes: Floats, group: Group) -> Floats:
    """Return the seconds of a reduce-scatter, after which every rank holds its shard of the sum over all ranks.

    Args:
        full_bytes: Bytes of the whole tensor on each rank, of shape (layouts,).
        group: Ranks of each layout, and their links.

    Returns:
        Seconds on the wire, of shape (layouts,). Computation may hide a part of them.
    """
    timed_s = measured_s("reduce_scatter", full_bytes, group)
    return all_gather_s(full_bytes, group) if timed_s is None else timed_s


def all_reduce_s(full_bytes: Floats, group: Group) -> Floats:
    """Return the seconds of an all-reduce by the faster one of ring and tree; then every rank holds the sum.

    A ring is a reduce-scatter and an all-gather with one common start. A tree takes fewer steps: inside a node the
    switches may compute the sum (NVLink SHARP), and between nodes the height of the tree grows with the logarithm of
    the number of nodes. If a layout names an algorithm, a protocol or channels, these are used.

    Args:
        full_bytes: Bytes of the tensor on each rank, of shape (layouts,).
        group: Ranks of each layout, and their links.

    Returns:
        Seconds on the wire, of shape (layouts,). Computation may hide a part of them.

    Source: research/fit_links.py fits the links' constants to published benchmarks; catalog/links.toml has them.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.costmodel.communication.layout_groups import group_of
        >>> group = group_of(np.array([8]), np.array([1]), load_cluster("h100:8"))
        >>> bool(all_reduce_s(np.array([1e9]), group)[0] > reduce_scatter_s(np.array([1e9]), group)[0])
        True
    """
    timed_s = measured_s("all_reduce", full_bytes, group)
    if timed_s is not None:
        return timed_s
    ring_s = _pipelined_s(2 * full_bytes * group.ring_s_per_byte, 2 * group.ring_latency_s, group)
    switched_s = _pipelined_s(full_bytes * group.tree_s_per_byte, group.tree_latency_s, group)
    x = _named(group)
    if x is None:
        return np.minimum(ring_s, switched_s)
    asked_s = np.maximum(np.minimum(ring_s, switched_s), _asked_all_reduce_s(full_bytes, switched_s, group, x))
    by_network = x.collective_algorithm == CollectiveAlgorithm.COLLNET
    return np.where(by_network, _collnet_s(full_bytes, group, x), asked_s) if by_network.any() else asked_s


def _asked_all_reduce_s(full_bytes: Floats, switched_s: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the time of each layout's all-reduce by the algorithm, protocol and channels that it names.

    ``switched_s`` is the time of NCCL's own choice. A named algorithm may be predicted faster than that (a plain tree
    where switches add), which was measured.

    On its own it may come out faster than NCCL's choice (a plain tree where switches add), which was measured.
    """
    ring_s = _ring_s(full_bytes, 2, group)
    switched_s = _at_least(switched_s, full_bytes, 2, group, x)
    tree_s = _tree_s(full_bytes, group, x)
    simple = (x.collective_protocol == CollectiveProtocol.AUTO) | (x.collective_protocol == CollectiveProtocol.SIMPLE)
    adds = group.intra_node_link.multicast_efficiency > 0
    other_s = np.where(simple & adds, switched_s, tree_s)
    named = (CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE, CollectiveAlgorithm.NVLS)
    return np.select(
        [x.collective_algorithm == way for way in named],
        [ring_s, tree_s, switched_s],
        np.minimum(ring_s, other_s),
    )


def _collnet_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the time of sums in the network's switches. A group inside a node goes around its ring instead.

    The formula follows NCCL's own model, because we know no published table that compares SHARP with rings.
    """
    seconds = _pipelined_s(full_bytes * group.switched_s_per_byte, group.switched_latency_s, group)
    return np.where(group.crosses_nodes, _at_least(seconds, full_bytes, 2, group, x), _ring_s(full_bytes, 2, group))


def ring_all_reduce_s(full_bytes: Floats, group: Group) -> Floats:
    """Return the seconds of a ring all-reduce on CPU cores. They are the same for gloo and for the product's own ring.

    Args:
        full_bytes: Bytes of the tensor on each rank, of shape (layouts,).
        group: Ranks of each layout, and their links.
    """
    timed_s = measured_s("all_reduce", full_bytes, group)
    return _ring_s(full_bytes, 2, group) if timed_s is None else timed_s


def two_trees_all_reduce_s(full_bytes: Floats, group: Group, is_cyclic: Booleans) -> Floats:
    """Return the seconds of an all-reduce over two trees on CPU cores. The product's own trainer builds it from sends.

    Args:
        full_bytes: Bytes of the tensor on each rank.
        group: Ranks of each layout, and their links.
        is_cyclic: True for cyclic placement, with which ranks of neighbouring numbers lie on different nodes.
    """
    latency_s, s_per_byte = group.two_trees_latency_s, group.two_trees_s_per_byte(is_cyclic)
    return np.where(group.num_ranks > 1, _pipelined_s(full_bytes * s_per_byte, latency_s, group), 0.0)


def all_to_all_s(sent_bytes: Floats, group: Group, outside: Floats | float = 1.0) -> Floats:
    """Return the seconds of an all-to-all, in which each rank sends an equal share of ``sent_bytes`` to every rank.

    An all-to-all takes as many steps as a ring.

    Args:
        sent_bytes: Bytes of each rank, including its own share.
        group: Ranks of each layout, and their links.
        outside: Share of the bytes for other nodes that crosses the network. It is below 1 if bytes for several
            ranks of one node are sent to this node once, and passed on inside it.
    """
    timed_s = measured_s("all_to_all", sent_bytes, group)
    if timed_s is not None:
        return timed_s
    return _pipelined_s(sent_bytes * group.all_to_all_s_per_byte(outside), group.ring_latency_s, group)


def send_s(sent_bytes: Floats, group: Group) -> Floats:
    """Return the seconds to send ``sent_bytes`` to a neighbour over the group's slowest link; 0 for one rank.

    Args:
        sent_bytes: Bytes of the message, of shape (layouts,).
        group: Ranks of each layout, and their links.
    """
    timed_s = measured_s("send", sent_bytes, group)
    if timed_s is not None:
        return timed_s
    seconds = _pipelined_s(sent_bytes * group.send_s_per_byte, group.step_s, group)
    return np.where(group.num_ranks > 1, seconds, 0.0)


def _ring_s(full_bytes: Floats, rounds: int, group: Group) -> Floats:
    """Return the time of this number of ring rounds. A gather or scatter has one round, an all-reduce has two."""
    transfer_s, latency_s = rounds * full_bytes * group.ring_s_per_byte, rounds * group.ring_latency_s
    x = _named(group)
    if x is None:
        return _pipelined_s(transfer_s, latency_s, group)
    slowdown = np.array(_RING.slowdown)[x.collective_protocol]
    if rounds == 1:
        gathers = (x.collective_protocol == CollectiveProtocol.LL) & ~group.crosses_nodes
        slowdown = np.where(gathers, _GATHER_IN_NODE_LL, slowdown)
    lone = (x.collective_protocol == CollectiveProtocol.LL128) & (group.ranks_per_node < 2)
    slowdown = np.where(lone, _RING_LL128_LONE, slowdown)
    between = group.num_nodes - 1
    added_s = _RING.added_s(x, rounds * (group.num_ranks - 1 - between), rounds * between)
    return _at_least(_pipelined_s(transfer_s * slowdown, latency_s + added_s, group), full_bytes, rounds, group, x)


def _tree_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the time up and down a tree whose ranks add the data themselves."""
    plain = replace(group, intra_node_link=replace(group.intra_node_link, multicast_efficiency=0.0))
    transfer_s = full_bytes * plain.tree_s_per_byte * np.array(_TREE.slowdown)[x.collective_protocol]
    height = np.ceil(np.log2(group.num_nodes)).astype(np.int64)
    added_s = _TREE.added_s(x, 2 * (group.ranks_per_node - 1), 2 * height)
    return _at_least(_pipelined_s(transfer_s, plain.tree_latency_s + added_s, group), full_bytes, 2, group, x)


def _at_least(seconds: Floats, full_bytes: Floats, rounds: int, group: Group, x: LayoutColumns) -> Floats:
    """Return the time, or the time that the channels need for the bytes that pass each rank, if that is longer."""
    passed_bytes = rounds * full_bytes * (group.num_ranks - 1) / group.num_ranks
    floor_s = passed_bytes / (np.maximum(x.collective_channels, 1) * CHANNEL_BYTES_PER_S)
    return np.where(x.collective_channels > 0, np.maximum(seconds, floor_s), seconds)


def _named(group: Group) -> LayoutColumns | None:
    """Return the layouts if any of them names an algorithm, a protocol or channels; otherwise None."""
    x = group.layouts
    if x is None:
        return None
    named = x.collective_algorithm.any() or x.collective_protocol.any() or x.collective_channels.any()
    return x if named else None


def _pipelined_s(transfer_s: Floats, latency_s: Floats, group: Group) -> Floats:
    filling_s: Floats = 2 * np.sqrt(group.ramp_s * transfer_s)
    return group.start_s + latency_s + transfer_s + filling_s


def data_all_reduce_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the seconds of an all-reduce among data-parallel ranks, on one or two levels as the layout says.

    On two levels, the ranks inside each node sum first, and then the nodes exchange their sums.

    Args:
        full_bytes: Bytes of the tensor on each rank, of shape (layouts,).
        group: Data-parallel ranks of each layout, and their links.
        x: Layouts, one per row.
    """
    flat_s = _all_reduce_s(full_bytes, group, x)
    if not x.collective_hierarchy.any():
        return flat_s
    num, inside = _num_pieces(full_bytes, group), group.inside_nodes
    piece = full_bytes / num
    inside_s = reduce_scatter_s(piece, inside) + all_gather_s(piece, inside)
    between_s = _all_reduce_s(piece / group.ranks_per_node, group.between_nodes, x)
    two_level_s = _side_by_side_s(inside_s, between_s, num)
    return np.where(_on_two_levels(group, x), two_level_s, flat_s)


def data_all_gather_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the seconds of an all-gather among data-parallel ranks, on one or two levels as the layout says.

    On two levels, the shards are first gathered between nodes, and then inside each node.

    Args:
        full_bytes: Bytes of the whole tensor, of shape (layouts,).
        group: Data-parallel ranks of each layout, and their links.
        x: Layouts, one per row.
    """
    flat_s = all_gather_s(full_bytes, group)
    if not x.collective_hierarchy.any():
        return flat_s
    num = _num_pieces(full_bytes, group)
    piece = full_bytes / num
    between_s = all_gather_s(piece / group.ranks_per_node, group.between_nodes)
    two_level_s = _side_by_side_s(all_gather_s(piece, group.inside_nodes), between_s, num)
    return np.where(_on_two_levels(group, x), two_level_s, flat_s)


def data_reduce_scatter_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the seconds of a reduce-scatter among data-parallel ranks, on one or two levels as the layout says.

    On two levels, the ranks inside each node reduce first, and then the nodes reduce their sums.

    Args:
        full_bytes: Bytes of the whole tensor on each rank, of shape (layouts,).
        group: Data-parallel ranks of each layout, and their links.
        x: Layouts, one per row.
    """
    flat_s = reduce_scatter_s(full_bytes, group)
    if not x.collective_hierarchy.any():
        return flat_s
    num = _num_pieces(full_bytes, group)
    piece = full_bytes / num
    between_s = reduce_scatter_s(piece / group.ranks_per_node, group.between_nodes)
    two_level_s = _side_by_side_s(reduce_scatter_s(piece, group.inside_nodes), between_s, num)
    return np.where(_on_two_levels(group, x), two_level_s, flat_s)


def _num_pieces(full_bytes: Floats, group: Group) -> Floats:
    """Return the number of pieces of tensors on CPU cores: ``num_pieces`` in columns; 1 if NCCL has the groups."""
    if group.layouts is not None:
        return np.ones_like(full_bytes)
    return np.clip(full_bytes // PIECE_BYTES, 1, MOST_PIECES)


def _side_by_side_s(inside_s: Floats, between_s: Floats, num: Floats) -> Floats:
    """Return the time of ``num`` pieces on two levels: all pieces on the slower level, one on the faster level."""
    longer_s: Floats = np.maximum(inside_s, between_s)
    return num * longer_s + np.minimum(inside_s, between_s)


def _on_two_levels(group: Group, x: LayoutColumns) -> Booleans:
    """Return which rows have a group on two levels and a layout that uses both levels."""
    is_asked = x.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    rows: Booleans = is_asked & group.crosses_nodes & (group.ranks_per_node > 1)
    return rows


def _all_reduce_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Return the time of an all-reduce among the group, by NCCL or by this project's algorithms on CPU cores.

    gloo always uses a ring. A choice of the faster of ring and tree would be wrong for cyclic placement.
    """
    library_s = all_reduce_s(full_bytes, group)
    is_cyclic = x.rank_placement == RankPlacement.CYCLIC
    if group.layouts is not None or not (x.collective_algorithm.any() or is_cyclic.any()):
        return library_s
    ring_s, tree_s = ring_all_reduce_s(full_bytes, group), two_trees_all_reduce_s(full_bytes, group, is_cyclic)
    is_ring = (x.collective_algorithm == CollectiveAlgorithm.RING) | is_cyclic
    return np.select([x.collective_algorithm == CollectiveAlgorithm.TREE, is_ring], [tree_s, ring_s], library_s)
