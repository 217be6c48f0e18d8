"""What of tensors and their gradients this rank holds itself."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def local_part(tensor: Tensor) -> Tensor:
    """The tensor, or this rank's shard of it, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards of parameters, in the same memory."""
    return [local_part(tensor.detach()) for tensor in tensors]


def local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """This rank's shards of the gradients, in the same memory; a parameter without one is given zeros."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(local_part(parameter.grad))
    return gradients
