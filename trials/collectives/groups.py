"""Groups: the ranks of a job as parts of nodes, each a process group that all ranks heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch.distributed as dist

from autotuner.core.placement import Nodes

Partition: TypeAlias = Sequence[Sequence[int]]
"""Ranks of the job as groups, in the order of each; a rank is in one, or in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """A group of ranks, node by node.

    Attributes:
        ranks: In the order of the group.
        by_node: Those of each node, in that order.
    """

    ranks: tuple[int, ...]
    by_node: tuple[tuple[int, ...], ...]

    @property
    def are_one(self) -> bool:
        """The group lies on one node, or has one rank on each."""
        return len(self.by_node) in (1, len(self.ranks))

    @property
    def are_even(self) -> bool:
        """Every node has equally many."""
        return len({len(node) for node in self.by_node}) == 1

    @property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """The first rank of every node, the second of each, and so on while all have one."""
        return tuple(zip(*self.by_node, strict=False))

    @property
    def order(self) -> list[int]:
        """Positions in the group, column by column."""
        return [self.ranks.index(rank) for column in self.columns for rank in column]


def levels_of(ranks: Sequence[int], nodes: Nodes) -> Levels:
    """A group's ranks by the nodes that they lie on."""
    by_node: dict[int, list[int]] = {}
    for rank in ranks:
        by_node.setdefault(nodes.node_of(rank), []).append(rank)
    return Levels(ranks=tuple(ranks), by_node=tuple(map(tuple, by_node.values())))


def new_group_of(partition: Partition) -> dist.ProcessGroup | None:
    """A new group of the ranks that are with this one, in their order; None where it is in none.

    Every rank of the job calls it: all have to hear of every group (torch names those that only their own ranks make by
    how many groups each of these had before, which need not be equal).
    """
    own = None
    for ranks in partition:
        group = dist.new_group(list(ranks), sort_ranks=False)
        own = group if dist.get_rank() in ranks else own
    return own
