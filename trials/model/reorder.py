"""Rows in another order: a gather forward and a gather backward, so equal runs stay equal bit by bit.

The backward pass of plain indexing adds rows up, which CUDA does in any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["inverse", "reordered"]


def inverse(order: Tensor) -> Tensor:
    """The order that takes rows back to where they were."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return back


def reordered(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """``rows[order]``; ``back`` is the inverse of ``order``."""
    result: Tensor = _Reordered.apply(rows, order, back)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return result


class _Reordered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return rows[order]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (back,) = ctx.saved_tensors
        return gradient[back], None, None
