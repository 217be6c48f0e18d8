"""Tree: all-reduces up and down two binary trees, each of which carries half of the bytes.

A rank inside one tree is a leaf of the other, so that every rank sends and receives about as much as in a ring, over
paths as long as the logarithm of the ranks (Sanders, Speck and Traeff, Parallel Computing 35, 2009, pages 581-594).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trials.collectives.background import ThreadBackground
from trials.collectives.collectives import TorchCollectives
from trials.collectives.stream import Stream, segments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A rank's place in a tree, by ranks of the group; the root has no parent."""

    parent: int | None
    children: tuple[int, ...]


def branches(rank: int, size: int) -> tuple[Branch, Branch]:
    """The places of a rank in both trees.

    The second tree is the first in a mirror, or turned by one rank where their number is odd. So nobody has children in
    both but rank 0 of an odd number.
    """
    return _branch(rank, size, is_turned=False), _branch(rank, size, is_turned=True)


def _branch(rank: int, size: int, *, is_turned: bool) -> Branch:
    def renumbered(number: int) -> int:
        return size - 1 - number if size % 2 == 0 else (number + 1) % size

    number_of = {renumbered(number) if is_turned else number: number for number in range(size)}
    rank_of = {number: each for each, number in number_of.items()}
    parent = _parent(number_of[rank], size)
    children = (rank_of[number] for number in range(size) if _parent(number, size) == number_of[rank])
    return Branch(parent=None if parent is None else rank_of[parent], children=tuple(children))


def _parent(number: int, size: int) -> int | None:
    """The number above one that 2^k divides and no more, in a binary tree in order; its odd numbers are leaves.

    It is the neighbour that 2^(k+1) divides and 2^(k+2) does not, or the other one where that is too large; 0 is over
    all.
    """
    if number == 0:
        return None
    lowest_bit = number & -number
    above = (number ^ lowest_bit) | (lowest_bit << 1)
    return above if above < size else number ^ lowest_bit


class _Climb:
    """One tree's half of an all-reduce, from the view of this rank."""

    def __init__(self, stream: Stream, branch: Branch, half: Tensor) -> None:
        self._stream, self._branch = stream, branch
        self._segments = segments_of(half)

    def up(self) -> None:
        """Add the children's sums to each segment and pass it to the parent; the root's go down."""
        parent, children = self._branch.parent, self._branch.children
        from_children = [self._stream.arrivals(map(torch.empty_like, self._segments), child) for child in children]
        for segment, *arrived in zip(self._segments, *from_children, strict=True):
            for of_child in arrived:
                segment.add_(of_child)
            self._send(segment, children if parent is None else (parent,))

    def down(self) -> None:
        """Take the sum of all from the parent and pass it to the children.

        It takes the place of what went up, which had arrived by then: the parent's sum holds it.
        """
        if self._branch.parent is not None:
            for segment in self._stream.arrivals(self._segments, self._branch.parent):
                self._send(segment, self._branch.children)

    def _send(self, segment: Tensor, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._stream.send(segment, rank)


class Tree:
    """``Collectives`` whose all-reduce climbs trees; there is nothing to climb in the others, which torch does."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._branches = branches(dist.get_rank(group), dist.get_world_size(group))
        self._threads = [ThreadBackground() for _ in range(2 * len(self._branches))]
        torch_collectives = TorchCollectives(group)
        self.reduce_scatter = torch_collectives.reduce_scatter
        self.all_gather = torch_collectives.all_gather

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``; both trees carry bytes up and down at the same time."""
        halves = tensor.view(-1).tensor_split(len(self._branches))
        streams = [Stream(self._group, tag) for tag in range(len(halves))]
        climbs = map(_Climb, streams, self._branches, halves)
        ways = [way for climb in climbs for way in (climb.up, climb.down)]
        begun = [thread.start("all_reduce", way, tensor) for thread, way in zip(self._threads, ways, strict=True)]
        for pending in begun:
            pending.wait()
        for stream in streams:
            stream.finish()
