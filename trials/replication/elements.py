"""Replicas exchange some elements of what they remember, the same ones on all: nothing need say which.

Shapes: R rows, of each of which one element is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from trials.replication.momentum import Momentum
from trials.replication.offsets import ChosenOffsets, random_offsets
from trials.replication.replicator import ReplicatorState
from trials.replication.sending import Sending, sum_up


class ElementReplicator:
    """One all-reduce per step of one momentum element of each ``sparsity``; a ``Replicator``.

    The elements become the mean of all replicas, the others zero.

    Source: the random and striding replicators of arXiv 2502.06728, with an element of each row in the place of so
    many of the whole: as many are sent of each tensor and in each step.
    """

    payload_bytes = 0

    def __init__(
        self,
        tensors: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        sparsity: int = 16,
        offsets: ChosenOffsets = random_offsets,
        decay: float = 0.999,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Of tensors like these, in a group of the ranks that hold the same ones."""
        self._momentum = Momentum(tensors, width=sparsity, decay=decay)
        self._group = group
        self._chosen = offsets
        self._payload_dtype = payload_dtype
        self._sent: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Choose elements of the momentum, forget them, and start to sum everybody's."""
        offsets_R1 = self._chosen(self._momentum.rows, self._momentum.num_steps)
        self._momentum.add(gradients)
        values_R1 = self._momentum.matrix.gather(1, offsets_R1).to(self._payload_dtype)
        self._momentum.subtract(self._momentum.rows.zeros().scatter_(1, offsets_R1, values_R1.float()))
        self._sent = offsets_R1, values_R1
        sending = sum_up(values_R1, self._group)
        self.payload_bytes = 0 if sending is None else values_R1.nbytes
        return sending

    @torch.no_grad()
    def finish(self) -> list[Tensor]:
        """The mean of what was sent, among zeros."""
        assert self._sent is not None, "an exchange is started before it is finished"
        offsets_R1, sum_R1 = self._sent
        self._sent = None
        mean_R1 = sum_R1.float() / self._group.size()
        return self._momentum.rows.elements(self._momentum.rows.zeros().scatter_(1, offsets_R1, mean_R1))

    def state_dict(self) -> ReplicatorState:
        """The residuals, and the number of the step, which the choice depends on."""
        return self._momentum.state_dict()

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Go on from these residuals, whatever the sparsity that left them."""
        self._momentum.load_state_dict(state)
