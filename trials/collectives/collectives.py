"""Collectives: what ranks of a group do together, and torch's own way to do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch.distributed as dist
from torch import Tensor

# torch 2.13 warns of the older names, and 2.11 has no others
_reduce_scatter: Callable[..., object] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Collectives(Protocol):
    """Sums and gathers among the ranks of a group, each done when the call returns (on a GPU: in its stream's order).

    Every rank of the group makes the same calls in the same order, with flat contiguous tensors of the same length.
    """

    def all_reduce(self, tensor: Tensor) -> None:
        """Put the sum over all ranks in the tensor's place."""

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """Put this rank's of equal parts of the sum over all ranks into ``part``; ``whole`` stays."""

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """Put the parts of all ranks, in their order, into ``whole``, which ``part`` may be a piece of."""


class TorchCollectives:
    """Those of torch's backend, which chooses the way of the bytes."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def all_reduce(self, tensor: Tensor) -> None:
        """See ``Collectives``."""
        dist.all_reduce(tensor, group=self._group)

    def reduce_scatter(self, part: Tensor, whole: Tensor) -> None:
        """See ``Collectives``."""
        _reduce_scatter(part, whole, group=self._group)

    def all_gather(self, whole: Tensor, part: Tensor) -> None:
        """See ``Collectives``."""
        _all_gather(whole, part, group=self._group)
