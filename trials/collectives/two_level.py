"""Two-level collectives: inside nodes, between nodes with as few bytes as there can be, inside nodes again.

A node of L ranks sends M * (N - 1) / N of M bytes to N - 1 others in a reduce-scatter or an all-gather, and twice that
in an all-reduce, split evenly over its ranks and so over its ports; a flat ring that leaves the node once sends almost
the whole M over one of them, and up to L times that where neighbours lie on different nodes.

A tensor goes through the levels in pieces: while one is between the nodes, the next one is at work inside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.stages import num_pieces
from trials.collectives.collectives import Collectives
from trials.collectives.communicator import Communicator
from trials.runtime.pending import Pending


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """``Collectives`` of a group that has equally many ranks on each of its nodes.

    Attributes:
        inside: Of the group's ranks on this node.
        between: Of the ranks that have this one's place on their nodes.
        order: The group's ranks sorted by place, then by node.
    """

    inside: Collectives
    between: Communicator
    order: Sequence[int]
    ranks_per_node: int

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        begun = [self._begin_to_sum(piece) for piece in _pieces(tensor.view(-1), self.ranks_per_node)]
        for piece, padded, part, pending in begun:
            pending.wait()
            self.inside.all_gather(padded, part)
            if padded is not piece:
                piece.copy_(padded[: piece.numel()])

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        for piece, of_rank in self._columns(part, whole):
            by_place = piece[list(self.order)].view(-1)
            of_place = torch.empty_like(by_place[: by_place.numel() // self.ranks_per_node])
            self.inside.reduce_scatter(of_place, by_place)
            begun.append(self.between.reduce_scatter(of_rank, of_place))
        for pending in begun:
            pending.wait()

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        for piece, of_rank in self._columns(part, whole):
            of_place = part.new_empty(piece.numel() // self.ranks_per_node)
            begun.append((piece, of_place, self.between.all_gather(of_place, of_rank)))
        for piece, of_place, pending in begun:
            by_place = piece.new_empty(piece.shape)
            pending.wait()
            self.inside.all_gather(by_place.view(-1), of_place)
            piece[list(self.order)] = by_place

    def _begin_to_sum(self, piece: Tensor) -> tuple[Tensor, Tensor, Tensor, Pending]:
        """Sum a piece inside nodes, and begin to sum this rank's part of it between them."""
        padded = _padded(piece, self.ranks_per_node)
        part = torch.empty_like(padded[: padded.numel() // self.ranks_per_node])
        self.inside.reduce_scatter(part, padded)
        return piece, padded, part, self.between.all_reduce(part)

    def _columns(self, part: Tensor, whole: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pieces of every rank's part of the whole, a row each, and of this rank's own."""
        num = _num_pieces(whole)
        rows = whole.view(len(self.order), -1)
        return zip(rows.tensor_split(num, dim=1), part.view(-1).tensor_split(num), strict=True)


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
    between: Communicator | None
    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        begun = []
        pieces = _pieces(tensor.view(-1), 1)
        for piece in pieces:
            dist.reduce(piece, group=self.inside, group_dst=0)
            begun += [] if self.between is None else [self.between.all_reduce(piece)]
        for number, piece in enumerate(pieces):
            if begun:
                begun[number].wait()
            dist.broadcast(piece, group=self.inside, group_src=0)

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


def _num_pieces(whole: Tensor) -> int:
    """One on a GPU: two communicators of NCCL at work at once may wait for each other's kernels, and none was tried."""
    return 1 if whole.is_cuda else num_pieces(whole.nbytes)


def _pieces(flat: Tensor, multiple: int) -> Sequence[Tensor]:
    """Pieces of a tensor; the lengths of all but the last are multiples."""
    length = -(-flat.numel() // _num_pieces(flat))
    return torch.split(flat, max(length + -length % multiple, 1))


def _padded(flat: Tensor, multiple: int) -> Tensor:
    """The tensor itself, or longer so that it divides."""
    missing = -flat.numel() % multiple
    return flat if missing == 0 else torch.cat((flat, flat.new_zeros(missing)))
