"""Rows on their way to experts and back: how many go where, and in which order.

Reordering is a gather forward and a gather backward, so equal runs stay equal bit by bit: the backward pass of plain
indexing adds rows up, which CUDA does in any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def histogram(indices: Tensor, num_values: int) -> Tensor:
    """How often each of the values 0, 1, ... is among the indices; unlike ``bincount``, of a shape known before."""
    nothing = torch.zeros(num_values, dtype=torch.long, device=indices.device)
    return nothing.scatter_add(0, indices, torch.ones_like(indices))


def count_on_host(counts: Tensor, total: int) -> list[int]:
    """The counts, which sum to ``total``; the host waits for the device.

    Tensors without values (a dry run) count as if nobody had a preference.
    """
    if isinstance(counts, FakeTensor):
        quotient, remainder = divmod(total, len(counts))
        return [quotient + (index < remainder) for index in range(len(counts))]
    numbers: list[int] = counts.tolist()
    return numbers


def inverse(order: Tensor) -> Tensor:
    """The order that takes rows back to where they were."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


def permuted(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """The rows ``rows[order]``; ``back`` is the inverse of ``order``."""
    result: Tensor = _Permuted.apply(rows, order, back)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return result


class _Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return rows[order]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (back,) = ctx.saved_tensors
        return gradient[back], None, None
