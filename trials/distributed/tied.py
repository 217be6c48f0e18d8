"""A tied vocabulary table that lies on two pipeline stages: the gradients of its two copies are one sum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class TiedTables:
    """The first stage's embedding and the last stage's output, as far as this rank holds them.

    Both begin with the same values and get the same gradients, so they stay equal and are never compared. The two
    ranks that hold the same part of the table lie at the ends of one pipeline; a schedule that runs in a V has both
    copies on the first of them.
    """

    def __init__(self, tied: Sequence[int], pipeline: dist.ProcessGroup) -> None:
        """Take the indices of the tables among this rank's optimizer shards, one or two (``tied``)."""
        self._tied = tied
        self._group = pipeline
        self._last = dist.get_world_size(pipeline) - 1

    def sum(self, gradients: Sequence[Tensor]) -> None:
        """Add up the gradients of the table's copies, among those of all optimizer shards of this rank."""
        own = [gradients[index] for index in self._tied]
        if len(own) == 2:
            own[0] += own[1]
            own[1].copy_(own[0])
        else:
            own[0] += self._exchanged(own[0])

    def _exchanged(self, gradient: Tensor) -> Tensor:
        """The gradient of the other copy, from the other end of the pipeline."""
        theirs = torch.empty_like(gradient)
        end = self._last if dist.get_rank(self._group) == 0 else 0
        peer = dist.get_global_rank(self._group, end)
        send = dist.P2POp(dist.isend, gradient, peer, self._group)
        receive = dist.P2POp(dist.irecv, theirs, peer, self._group)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
        return theirs
