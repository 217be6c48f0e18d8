"""How many rows go where, as numbers that the host can read."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["on_host", "tally"]


def tally(indices: Tensor, num_values: int) -> Tensor:
    """How often each of the values 0, 1, ... is among the indices; unlike ``bincount``, of a shape known before."""
    nothing = torch.zeros(num_values, dtype=torch.long, device=indices.device)
    return nothing.scatter_add(0, indices, torch.ones_like(indices))


def on_host(counts: Tensor, total: int) -> list[int]:
    """The counts, which sum to ``total``; the host waits for the device.

    Tensors without values (a dry run) count as if nobody had a preference.
    """
    if isinstance(counts, FakeTensor):
        share, left = divmod(total, len(counts))
        return [share + (place < left) for place in range(len(counts))]
    numbers: list[int] = counts.tolist()
    return numbers
