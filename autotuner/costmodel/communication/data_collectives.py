"""Collectives of data-parallel ranks: flat or on two levels, and on cores by the algorithm that a layout names.

On two levels the ranks of a node first sum among each other, so that each holds a part of the node's sum; those of the
same place on all nodes sum their parts; and the parts are gathered inside the nodes (Jia et al., "Highly scalable deep
learning training system with mixed-precision", 2018, section 4.3). Between nodes goes a node's bytes once, whatever
node the neighbours in a flat ring lie on.

On GPUs both levels are NCCL's collectives, one after the other. On cores they are gloo's or our own
(``trials.collectives``), which take a tensor in pieces: the level that is longer at work is so all the time, and of the
other one a piece shows.
"""

from __future__ import annotations

import numpy as np

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, RankPlacement
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.stages import MOST_PIECES, PIECE_BYTES
from autotuner.costmodel.communication.collectives import (
    all_gather_s,
    all_reduce_s,
    reduce_scatter_s,
    ring_all_reduce_s,
    two_trees_all_reduce_s,
)
from autotuner.costmodel.communication.group import Group


def data_all_reduce_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Seconds until every rank of a data-parallel group holds the sum of ``full_bytes`` of each."""
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
    """Seconds until every rank of a data-parallel group holds all ``full_bytes``: between nodes first."""
    flat_s = all_gather_s(full_bytes, group)
    if not x.collective_hierarchy.any():
        return flat_s
    num = _num_pieces(full_bytes, group)
    piece = full_bytes / num
    between_s = all_gather_s(piece / group.ranks_per_node, group.between_nodes)
    two_level_s = _side_by_side_s(all_gather_s(piece, group.inside_nodes), between_s, num)
    return np.where(_on_two_levels(group, x), two_level_s, flat_s)


def data_reduce_scatter_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """Seconds until every rank of a data-parallel group holds its share of the sum; the gather backwards."""
    flat_s = reduce_scatter_s(full_bytes, group)
    if not x.collective_hierarchy.any():
        return flat_s
    num = _num_pieces(full_bytes, group)
    piece = full_bytes / num
    between_s = reduce_scatter_s(piece / group.ranks_per_node, group.between_nodes)
    two_level_s = _side_by_side_s(reduce_scatter_s(piece, group.inside_nodes), between_s, num)
    return np.where(_on_two_levels(group, x), two_level_s, flat_s)


def _num_pieces(full_bytes: Floats, group: Group) -> Floats:
    """Into how many tensors are cut on cores: ``num_pieces`` in columns; one where the groups are NCCL's."""
    if group.layouts is not None:
        return np.ones_like(full_bytes)
    return np.clip(full_bytes // PIECE_BYTES, 1, MOST_PIECES)


def _side_by_side_s(inside_s: Floats, between_s: Floats, num: Floats) -> Floats:
    """Seconds for so many pieces that take so long each: the longer level for all of them, the other for one."""
    longer_s: Floats = np.maximum(inside_s, between_s)
    return num * longer_s + np.minimum(inside_s, between_s)


def _on_two_levels(group: Group, x: LayoutColumns) -> Booleans:
    """Where a group has two levels, and is asked to use them."""
    is_asked = x.collective_hierarchy == CollectiveHierarchy.TWO_LEVEL
    rows: Booleans = is_asked & group.crosses_nodes & (group.ranks_per_node > 1)
    return rows


def _all_reduce_s(full_bytes: Floats, group: Group, x: LayoutColumns) -> Floats:
    """An all-reduce among the group: NCCL is asked by the group itself, on cores the algorithm is ours.

    gloo goes around a ring, which a choice among ours and a tree would hide where ranks are dealt to nodes in turn.
    """
    library_s = all_reduce_s(full_bytes, group)
    is_dealt = x.rank_placement == RankPlacement.CYCLIC
    if group.layouts is not None or not (x.collective_algorithm.any() or is_dealt.any()):
        return library_s
    ring_s, tree_s = ring_all_reduce_s(full_bytes, group), two_trees_all_reduce_s(full_bytes, group, is_dealt)
    is_ring = (x.collective_algorithm == CollectiveAlgorithm.RING) | is_dealt
    return np.select([x.collective_algorithm == CollectiveAlgorithm.TREE, is_ring], [tree_s, ring_s], library_s)
