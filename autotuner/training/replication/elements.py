"""Replicas exchange some elements of what they remember, the same ones on all: nothing need say which.

Shapes: R rows, of each of which one element is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.training.replication.replicator import Momentum, ReplicatorState, Rows, Sending, sum_up

# Which element of each row is sent in a step: every replica finds the same without a word.
#
# Drawn by a hash of integers rather than by a generator: generators of unlike GPUs draw unlike numbers from one seed,
# and there is no state to keep but the number of the step.

ChosenOffsets = Callable[[Rows, int], Tensor]
"""Offsets within rows, ``[num_rows, 1]``, in the step of that number."""

_Number = TypeVar("_Number", int, Tensor)

_WORD = 0xFFFF_FFFF


def random_offsets(rows: Rows, step: int) -> Tensor:
    """Another draw for every row and step; rows of one tensor draw alike wherever the tensor lies.

    Every element is sent once in ``width`` steps on average, and as many in each step.
    """
    salts = (_mixed(_mixed(step) + position) for position in range(len(rows.num_rows_of)))
    first_rows = accumulate(rows.num_rows_of[:-1], initial=0)
    starts = torch.tensor([salt - first for salt, first in zip(salts, first_rows, strict=True)], device=rows.device)
    counts = torch.tensor(rows.num_rows_of, device=rows.device)
    keys = torch.repeat_interleave(starts, counts, output_size=rows.num_rows)
    return (_mixed(keys + torch.arange(rows.num_rows, device=rows.device)) % rows.width).unsqueeze(1)


def striding_offsets(rows: Rows, step: int) -> Tensor:
    """The same offset in all rows, the next one in the next step: each element is sent once in ``width`` steps."""
    return torch.full((rows.num_rows, 1), step % rows.width, device=rows.device)


def _mixed(number: _Number) -> _Number:
    """A word of 32 bits in which each bit depends on all of the number's; source: the finaliser of MurmurHash3."""
    word = number & _WORD
    word = (word ^ (word >> 16)) * 0x85EB_CA6B & _WORD
    word = (word ^ (word >> 13)) * 0xC2B2_AE35 & _WORD
    return word ^ (word >> 16)


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
