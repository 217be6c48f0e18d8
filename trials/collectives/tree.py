"""Tree: all-reduces up and down two binary trees, each of which carries half of the bytes.

A rank inside one tree is a leaf of the other, so that every rank sends and receives about as much as in a ring, over
paths as long as the logarithm of the ranks (Sanders, Speck and Traeff, Parallel Computing 35, 2009, pages 581-594).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from trials.collectives.collectives import TorchCollectives

__all__ = ["Branch", "Tree", "branches"]

_SEGMENT_BYTES = 2**18
"""What a rank passes on at once while more arrives, an assumption: 16 segments of 8 MiB in each of two trees."""

_AHEAD = 4
"""Segments that go up before the first comes down, so that a link carries both ways at once; an assumption."""


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


@dataclass(slots=True, kw_only=True)
class _Climb:
    """One tree's half of an all-reduce, from the view of this rank."""

    group: dist.ProcessGroup
    tag: int
    branch: Branch
    segments: tuple[Tensor, ...]
    sent_up: dict[int, dist.Work] = field(default_factory=dict)
    sent_down: list[dist.Work] = field(default_factory=list)

    def up(self, index: int) -> None:
        """Add the children's sums to a segment, if there is one, and pass it to the parent; the root's goes down."""
        if index >= len(self.segments):
            return
        segment = self.segments[index]
        for child in self.branch.children:
            arrived = torch.empty_like(segment)
            self._receive(arrived, child)
            segment += arrived
        if self.branch.parent is None:
            self._send_down(segment)
        else:
            self.sent_up[index] = self._send(segment, self.branch.parent)

    def down(self, index: int) -> None:
        """Take the sum of all from the parent, if there is such a segment, and pass it to the children."""
        if index >= 0 and self.branch.parent is not None:
            self.sent_up[index].wait()  # what went up has to be gone before its place is taken
            self._receive(self.segments[index], self.branch.parent)
            self._send_down(self.segments[index])

    def _send_down(self, segment: Tensor) -> None:
        self.sent_down += [self._send(segment, child) for child in self.branch.children]

    def _send(self, segment: Tensor, rank: int) -> dist.Work:
        message = dist.isend(segment, group=self.group, group_dst=rank, tag=self.tag)
        assert message is not None  # this rank is in the group
        return message

    def _receive(self, segment: Tensor, rank: int) -> None:
        dist.recv(segment, group=self.group, group_src=rank, tag=self.tag)


class Tree:
    """``Collectives`` whose all-reduce climbs trees; there is nothing to climb in the others, which torch does."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._branches = branches(dist.get_rank(group), dist.get_world_size(group))
        torch_collectives = TorchCollectives(group)
        self.reduce_scatter = torch_collectives.reduce_scatter
        self.all_gather = torch_collectives.all_gather

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        halves = tensor.view(-1).tensor_split(len(self._branches))
        num_segments = -(-halves[0].nbytes // _SEGMENT_BYTES)
        climbs = [
            _Climb(group=self._group, tag=tag, branch=branch, segments=half.tensor_split(num_segments))
            for tag, (branch, half) in enumerate(zip(self._branches, halves, strict=True))
        ]
        for index in range(num_segments + _AHEAD):
            for climb in climbs:
                climb.up(index)
            for climb in climbs:
                climb.down(index - _AHEAD)
        for climb in climbs:
            for message in climb.sent_down:
                message.wait()
