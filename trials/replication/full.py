"""The exchange that loses nothing: every gradient, every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from trials.replication.replicator import ReplicatorState, Rows, Sending, sum_up


class FullReplicator:
    """One all-reduce per step of all gradients; a ``Replicator``, and what the others are compared with."""

    payload_bytes = 0

    def __init__(
        self, tensors: Sequence[Tensor], group: dist.ProcessGroup, *, payload_dtype: torch.dtype = torch.float32
    ) -> None:
        """Of tensors like these, in a group of the ranks that hold the same ones."""
        self._rows = Rows(tensors, 1)
        self._group = group
        self._payload_dtype = payload_dtype
        self._num_steps = 0
        self._sum: Tensor | None = None

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Start to sum everybody's gradients."""
        payload = torch.cat([gradient.reshape(-1).to(self._payload_dtype) for gradient in gradients])
        self._num_steps += 1
        self._sum = payload
        sending = sum_up(payload, self._group)
        self.payload_bytes = 0 if sending is None else payload.nbytes
        return sending

    def finish(self) -> list[Tensor]:
        """The mean gradients."""
        assert self._sum is not None, "an exchange is started before it is finished"
        mean = self._sum.float() / self._group.size()
        self._sum = None
        return self._rows.elements(mean)

    def state_dict(self) -> ReplicatorState:
        """No residuals: everything was sent."""
        return ReplicatorState(residuals=[], num_steps=self._num_steps)

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Count on from there."""
        self._num_steps = state["num_steps"]
