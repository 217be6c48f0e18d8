"""Ring: collectives whose bytes go from each rank to the next one of its group.

A rank sends (n - 1) / n of the bytes in a reduce-scatter and in an all-gather, and twice that in an all-reduce, which
is the least that n ranks can do with (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009, pages 117-124).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Ring:
    """``Collectives`` by messages between neighbours, in the order of the group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._size, self._rank = dist.get_world_size(group), dist.get_rank(group)
        ranks = dist.get_process_group_ranks(group)
        self._next = ranks[(self._rank + 1) % self._size]
        self._previous = ranks[self._rank - 1]

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``; parts need not be equal."""
        if self._size > 1:
            parts = tensor.view(-1).tensor_split(self._size)
            parts[self._rank].copy_(self._sum(parts))
            self._pass_around(parts)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        part.copy_(self._sum(whole.view(self._size, -1).unbind()).view_as(part))

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        parts = whole.view(self._size, -1).unbind()
        parts[self._rank].copy_(part.view(-1))
        self._pass_around(parts)

    def _sum(self, parts: Sequence[Tensor]) -> Tensor:
        """The sum over all ranks of this rank's part: each part goes once around, and every rank adds its own to it."""
        passed = parts[self._rank - 1]
        for step in range(2, self._size + 1):
            own = parts[self._rank - step]
            arrived = torch.empty_like(own)
            self._exchange(passed, arrived)
            passed = arrived.add_(own)
        return passed

    def _pass_around(self, parts: Sequence[Tensor]) -> None:
        """Give every rank the part that each of them has."""
        for step in range(self._size - 1):
            self._exchange(parts[self._rank - step], parts[self._rank - step - 1])

    def _exchange(self, sent: Tensor, received: Tensor) -> None:
        """Send to the next rank while the previous one sends."""
        messages = [
            dist.P2POp(dist.isend, sent, self._next, self._group),
            dist.P2POp(dist.irecv, received, self._previous, self._group),
        ]
        for message in dist.batch_isend_irecv(messages):
            message.wait()
