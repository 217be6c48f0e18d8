"""Data-parallel ranks that deal their sequences among each other."""

from __future__ import annotations

from math import gcd

from autotuner.core.layout import Layout


def dealing_ranks(layout: Layout, devices_per_node: int) -> int:
    """How many of them make a group: those that the layout names, or all of a node.

    Where nodes hold no whole part of the ranks, groups are those that lie whole in nodes.
    """
    if layout.num_dealing_ranks:
        return layout.num_dealing_ranks
    ranks = layout.data_parallel_degree
    of_a_node = max(1, devices_per_node // (layout.tensor_parallel_degree * layout.context_parallel_degree))
    return ranks if ranks <= of_a_node else gcd(ranks, of_a_node)
