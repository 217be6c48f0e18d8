"""Gradient clipping by the norm of the whole model's gradient, however it is spread over ranks.

torch's ``clip_grad_norm_`` knows the axes that its DTensors are split over, and neither the pipeline's nor flat
buckets: each stage would clip by a norm of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["clip", "total_norm"]


def total_norm(gradients: Sequence[Tensor], num_replicas: Sequence[int]) -> Tensor:
    """Norm over all ranks, each element counted once: its squares are divided among the replicas that hold it.

    Args:
        gradients: What this rank holds, in fp32.
        num_replicas: How often the whole job holds the same elements, of each tensor.
    """
    # squares are added in fp64: on a CPU torch adds up a long fp32 tensor one by one
    squares = torch._foreach_pow(torch._foreach_norm(list(gradients), dtype=torch.float64), 2)
    total = torch.stack(torch._foreach_div(squares, [float(number) for number in num_replicas])).sum()
    dist.all_reduce(total)
    return total.sqrt()


def clip(gradients: Sequence[Tensor], norm: Tensor, max_norm: float) -> None:
    """Scale the gradients down to ``max_norm`` where ``norm`` is above it, without making the device wait."""
    scale = (max_norm / norm).clamp(max=1.0).float()
    torch._foreach_mul_(list(gradients), scale)
