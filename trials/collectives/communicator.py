"""Communicator: ranks that sum and gather together while they compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

from trials.collectives.background import Background
from trials.collectives.collectives import Collectives
from trials.runtime.pending import Pending

# torch 2.13 warns of the older names, and 2.11 has no others
_reduce_scatter: Callable[..., dist.Work] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Callable[..., dist.Work] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Communicator(Protocol):
    """The ranks of a group; what they begin together runs in the order in which they begin it.

    Attributes:
        size: How many they are.
        rank: Which of them this process is.
    """

    @property
    def size(self) -> int:
        """See above."""

    @property
    def rank(self) -> int:
        """See above."""

    def all_reduce(self, tensor: Tensor) -> Pending:
        """Begin to put the sum over all ranks in the tensor's place."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """Begin to put this rank's of equal parts of the sum over all ranks into ``part``."""

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """Begin to put the parts of all ranks into ``whole``."""


class TorchCommunicator:
    """A ``Communicator`` by torch's own collectives, each begun by its backend."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def all_reduce(self, tensor: Tensor) -> Pending:
        """See ``Communicator``."""
        pending: Pending = dist.all_reduce(tensor, group=self._group, async_op=True)
        return pending

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """See ``Communicator``."""
        return _reduce_scatter(part, whole, group=self._group, async_op=True)

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """See ``Communicator``."""
        return _all_gather(whole, part, group=self._group, async_op=True)


class BackgroundCommunicator:
    """A ``Communicator`` by any ``Collectives``, of a rank of so many."""

    def __init__(self, collectives: Collectives, background: Background, *, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._collectives = collectives
        self._background = background

    def all_reduce(self, tensor: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("all_reduce", partial(self._collectives.all_reduce, tensor), tensor)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("reduce_scatter", partial(self._collectives.reduce_scatter, part, whole), part)

    def all_gather(self, whole: Tensor, part: Tensor) -> Pending:
        """See ``Communicator``."""
        return self._background.start("all_gather", partial(self._collectives.all_gather, whole, part), whole)
