"""Two-level collectives: inside nodes, between nodes with as few bytes as there can be, inside nodes again.

A node of L ranks sends M * (N - 1) / N of M bytes to N - 1 others in a reduce-scatter or an all-gather, and twice that
in an all-reduce, split evenly over its ranks and so over its ports; a flat ring that leaves the node once sends almost
the whole M over one of them, and up to L times that where neighbours lie on different nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trials.collectives.collectives import Collectives

__all__ = ["Led", "TwoLevel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """``Collectives`` of a group that has equally many ranks on each of its nodes.

    Attributes:
        inside: Of the group's ranks on this node.
        between: Of the ranks that have this one's place on their nodes.
        order: The group's ranks sorted by place, then by node.
    """

    inside: Collectives
    between: Collectives
    order: Sequence[int]
    ranks_per_node: int

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        flat = tensor.view(-1)
        padded = _padded(flat, self.ranks_per_node)
        part = torch.empty_like(padded[: padded.numel() // self.ranks_per_node])
        self.inside.reduce_scatter(part, padded)
        self.between.all_reduce(part)
        self.inside.all_gather(padded, part)
        if padded.data_ptr() != flat.data_ptr():
            flat.copy_(padded[: flat.numel()])

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        by_place = whole.view(len(self.order), -1)[list(self.order)].view(-1)
        of_place = torch.empty_like(by_place[: by_place.numel() // self.ranks_per_node])
        self.inside.reduce_scatter(of_place, by_place)
        self.between.reduce_scatter(part, of_place)

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        by_place = torch.empty_like(whole)
        of_place = torch.empty_like(by_place[: by_place.numel() // self.ranks_per_node])
        self.between.all_gather(of_place, part)
        self.inside.all_gather(by_place, of_place)
        whole.view(len(self.order), -1)[list(self.order)] = by_place.view(len(self.order), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """``Collectives`` of a group that has more ranks on some of its nodes: the first of each node speaks for them all.

    Attributes:
        inside: The group's ranks on this node, their first one leading.
        between: Of the leaders, on these.
        rank: Of this process in the group.
        size: Of the group.
    """

    inside: dist.ProcessGroup
    between: Collectives | None
    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        dist.reduce(tensor, group=self.inside, group_dst=0)
        if self.between is not None:
            self.between.all_reduce(tensor)
        dist.broadcast(tensor, group=self.inside, group_src=0)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``; as an all-reduce, of which a part is kept."""
        total = whole.clone()
        self.all_reduce(total)
        part.copy_(total.view(self.size, -1)[self.rank].view_as(part))

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``; as an all-reduce of parts among nothing."""
        own = part.clone()
        whole.zero_()
        whole.view(self.size, -1)[self.rank].copy_(own.view(-1))
        self.all_reduce(whole)


def _padded(flat: Tensor, multiple: int) -> Tensor:
    """The tensor itself, or longer so that it divides."""
    missing = -flat.numel() % multiple
    return flat if missing == 0 else torch.cat((flat, flat.new_zeros(missing)))
