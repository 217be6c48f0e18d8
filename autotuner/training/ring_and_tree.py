"""Collectives that consist of messages: around a ring, or up and down two trees.

In a ring, a rank sends (n - 1) / n of the bytes in a reduce-scatter and in an all-gather, and twice that in an
all-reduce. This is the least that n ranks can send (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009, pages
117-124).

With two trees, each tree sums half of the bytes. A rank inside one tree is a leaf of the other, so that every rank
sends and receives about as much as in a ring, over paths whose length is the logarithm of the number of ranks (Sanders,
Speck and Traeff, Parallel Computing 35, 2009, pages 581-594).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.training.communicator import ThreadBackground, TorchCollectives


class Ring:
    """``Collectives`` that send messages around a ring: each rank sends to the next one in the order of the group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._size, self._rank = dist.get_world_size(group), dist.get_rank(group)
        ranks = dist.get_process_group_ranks(group)
        self._next = ranks[(self._rank + 1) % self._size]
        self._previous = ranks[self._rank - 1]

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all ranks.

        The length of the tensor need not be a multiple of the number of ranks.
        """
        if self._size > 1:
            parts = tensor.view(-1).tensor_split(self._size)
            parts[self._rank].copy_(self._sum(parts))
            self._pass_around(parts)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """Sum ``whole`` over all ranks and write this rank's part of the sum into ``part``."""
        part.copy_(self._sum(whole.view(self._size, -1).unbind()).view_as(part))

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Write the parts of all ranks into ``whole``, in the order of the ranks. The parts travel around the ring."""
        parts = whole.view(self._size, -1).unbind()
        parts[self._rank].copy_(part.view(-1))
        self._pass_around(parts)

    def _sum(self, parts: Sequence[Tensor]) -> Tensor:
        """Return this rank's part of the sum.

        Each part is sent around the ring once, and every rank adds its own values.
        """
        passed = parts[self._rank - 1]
        for step in range(2, self._size + 1):
            own = parts[self._rank - step]
            arrived = torch.empty_like(own)
            self._exchange(passed, arrived)
            passed = arrived.add_(own)
        return passed

    def _pass_around(self, parts: Sequence[Tensor]) -> None:
        """Send the parts of all ranks to every rank, around the ring."""
        for step in range(self._size - 1):
            self._exchange(parts[self._rank - step], parts[self._rank - step - 1])

    def _exchange(self, sent: Tensor, received: Tensor) -> None:
        """Send a tensor to the next rank while the previous rank sends one to this rank."""
        messages = [
            dist.P2POp(dist.isend, sent, self._next, self._group),
            dist.P2POp(dist.irecv, received, self._previous, self._group),
        ]
        for message in dist.batch_isend_irecv(messages):
            message.wait()


_SEGMENT_BYTES = 2**16
_AHEAD = 8
"""Size of a segment, and number of segments in flight. Together they are half a MiB, which a 10 Gbit/s link sends in
the 0.4 ms until an answer. Four or eight segments of 32 to 128 KiB took the same time within 4 %."""


class _Stream:
    """The segments of one tensor that this rank exchanges with others, separate from messages of other tags.

    Gloo sends a message only after the receiver has requested it, and the request waits behind all data on the way. If
    each segment is requested when it is needed, links are empty meanwhile. If all segments are requested at once,
    leaves fill the queues of a slow link, and data that must go further waits behind them. Sums of 8 MiB over trees
    between two nodes of two ranks at 200 Mbit/s took 1,200 ms in the first way, 880 in the second, and 705 with eight
    requested segments; the transfer of the bytes alone takes 674.
    """

    def __init__(self, group: dist.ProcessGroup, tag: int) -> None:
        self._group, self._tag = group, tag
        self._sent: list[dist.Work] = []

    def send(self, segment: Tensor, rank: int) -> None:
        """Start to send a segment to a rank of the group, after the segments before it."""
        self._sent.append(self._group.send([segment], rank, self._tag))

    def arrivals(self, places: Iterable[Tensor], rank: int) -> Iterator[Tensor]:
        """Yield the tensors in ``places``, each after a rank of the group has sent its contents.

        Raises:
            RuntimeError: The rank has ended; raised at an arrival.
        """
        later = iter(places)
        asked = deque(self._ask(place, rank) for place in islice(later, _AHEAD))
        return self._in_order(asked, (self._ask(place, rank) for place in later))

    def finish(self) -> None:
        """Wait until everything that was sent has left this rank."""
        for message in self._sent:
            message.wait()

    def _ask(self, place: Tensor, rank: int) -> tuple[Tensor, dist.Work]:
        return place, self._group.recv([place], rank, self._tag)

    @staticmethod
    def _in_order(
        asked: deque[tuple[Tensor, dist.Work]], later: Iterator[tuple[Tensor, dist.Work]]
    ) -> Iterator[Tensor]:
        while asked:
            segment, message = asked.popleft()
            message.wait()
            asked.extend(islice(later, 1))
            yield segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The parent and the children of a rank in a tree, by their ranks in the group. The root has no parent."""

    parent: int | None
    children: tuple[int, ...]


def branches(rank: int, size: int) -> tuple[Branch, Branch]:
    """Return the parent and the children of a rank in each of the two trees.

    If the number of ranks is even, the second tree is the mirror image of the first. If it is odd, the second tree is
    the first one with all ranks moved by one. Therefore no rank has children in both trees, with one exception: rank 0
    if the number of ranks is odd.

    Example:
        >>> branches(0, 4)
        (Branch(parent=None, children=(2,)), Branch(parent=1, children=()))
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
    """Return the parent of a number in an in-order binary tree, whose odd numbers are leaves and whose root is 0.

    If 2^k is the largest power of two that divides the number, its parent is the number at distance 2^k for which this
    power is 2^(k+1). If that number is too large, the parent is the one on the other side.
    """
    if number == 0:
        return None
    lowest_bit = number & -number
    above = (number ^ lowest_bit) | (lowest_bit << 1)
    return above if above < size else number ^ lowest_bit


class _Climb:
    """This rank's part in one tree's half of an all-reduce."""

    def __init__(self, stream: _Stream, branch: Branch, half: Tensor) -> None:
        self._stream, self._branch = stream, branch
        self._segments = half.tensor_split(max(-(-half.nbytes // _SEGMENT_BYTES), 1))

    def up(self) -> None:
        """Add the children's sums to each segment, and send it to the parent.

        The root sends its segments down instead.
        """
        parent, children = self._branch.parent, self._branch.children
        from_children = [self._stream.arrivals(map(torch.empty_like, self._segments), child) for child in children]
        for segment, *arrived in zip(self._segments, *from_children, strict=True):
            for of_child in arrived:
                segment.add_(of_child)
            self._send(segment, children if parent is None else (parent,))

    def down(self) -> None:
        """Receive the total from the parent, and send it to the children.

        The total replaces the sum that was sent up. That sum has arrived by then, because it is a part of the total.
        """
        if self._branch.parent is not None:
            for segment in self._stream.arrivals(self._segments, self._branch.parent):
                self._send(segment, self._branch.children)

    def _send(self, segment: Tensor, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._stream.send(segment, rank)


class Tree:
    """``Collectives`` with an all-reduce that sends partial sums up two trees and the total down again.

    Torch runs the other collectives.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._branches = branches(dist.get_rank(group), dist.get_world_size(group))
        self._threads = [ThreadBackground() for _ in range(2 * len(self._branches))]
        torch_collectives = TorchCollectives(group)
        self.reduce_scatter = torch_collectives.reduce_scatter
        self.all_gather = torch_collectives.all_gather

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all ranks.

        Each of the two trees reduces one half of the tensor, and sends partial sums up and totals down at the same
        time.
        """
        halves = tensor.view(-1).tensor_split(len(self._branches))
        streams = [_Stream(self._group, tag) for tag in range(len(halves))]
        climbs = map(_Climb, streams, self._branches, halves)
        ways = [way for climb in climbs for way in (climb.up, climb.down)]
        begun = [thread.start("all_reduce", way, tensor) for thread, way in zip(self._threads, ways, strict=True)]
        for pending in begun:
            pending.wait()
        for stream in streams:
            stream.finish()
