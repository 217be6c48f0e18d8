"""Nodes: which rank numbers of a job lie on which of its nodes."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check
from autotuner.core.layouts.choice import RankPlacement

__all__ = ["Nodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Nodes of equally many ranks, to which the numbers of ranks are dealt."""

    num_nodes: int
    ranks_per_node: int
    placement: RankPlacement = RankPlacement.BLOCK

    def __post_init__(self) -> None:
        check.positive(self, "num_nodes", "ranks_per_node")

    def node_of(self, rank: int) -> int:
        """The node that the rank of this number lies on."""
        return rank % self.num_nodes if self.placement == RankPlacement.CYCLIC else rank // self.ranks_per_node

    def number_of(self, node: int, local_rank: int) -> int:
        """The number of a node's rank; rank 0 is the first node's first in any placement."""
        if self.placement == RankPlacement.CYCLIC:
            return local_rank * self.num_nodes + node
        return node * self.ranks_per_node + local_rank
