"""Collectives on plain tensors that return a new one and can be waited for later.

They are the operations under ``torch.distributed._functional_collectives``, whose Python names change from version
to version. The compiler can trace them, and a selective recomputation knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

_operations = torch.ops._c10d_functional


def all_gather(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """The tensors of all ranks, joined along dim 0."""
    return wait(_operations.all_gather_into_tensor(tensor.contiguous(), group.size(), group.group_name))


def reduce_scatter(tensor: Tensor, group: ProcessGroup) -> Tensor:
    """This rank's part, along dim 0, of the sum over all ranks."""
    return wait(_operations.reduce_scatter_tensor(tensor.contiguous(), "sum", group.size(), group.group_name))


def start_all_to_all(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """Begin to send every rank its rows; what comes back, one rank after the other, is there after ``wait``."""
    begun: Tensor = _operations.all_to_all_single(tensor.contiguous(), received, sent, group.group_name)
    return begun


def all_to_all(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """The rows that every rank sent to this one, one rank after the other."""
    return wait(start_all_to_all(tensor, sent, received, group))


def wait(begun: Tensor) -> Tensor:
    """The result of a collective that was begun."""
    result: Tensor = _operations.wait_tensor(begun)
    return result


def exchange(tensor: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup) -> Tensor:
    """``all_to_all`` whose backward pass sends every row's gradient back to where the row came from."""
    result: Tensor = _Exchange.apply(  # type: ignore[no-untyped-call]  # torch leaves it without types
        tensor, tuple(sent), tuple(received), group
    )
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, sent: tuple[int, ...], received: tuple[int, ...], group: ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return all_to_all(tensor, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return all_to_all(gradient, ctx.received, ctx.sent, ctx.group), None, None, None
