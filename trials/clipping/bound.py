"""What scales gradients down to a norm, and the norm that one bucket of many may have."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def clip(gradients: Sequence[Tensor], norm: Tensor, max_norm: float | Tensor) -> None:
    """Scale the gradients down to ``max_norm`` where ``norm`` is above it, without making the device wait."""
    scale = (max_norm / norm).clamp(max=1.0).float()
    torch._foreach_mul_(list(gradients), scale)


def squared_norms(gradients: Sequence[Tensor]) -> list[Tensor]:
    """The square of each tensor's norm, in fp64: on a CPU torch adds up a long fp32 tensor one by one."""
    return list(torch._foreach_pow(torch._foreach_norm(list(gradients), dtype=torch.float64), 2))


def bucket_bound(max_norm: float, num_buckets: Tensor) -> Tensor:
    """The norm that each of so many buckets may have, so that all together have ``max_norm`` at most.

    Source: arXiv 2402.02447 clips every bucket to ``max_norm / sqrt(num_buckets)`` before its all-reduce.
    """
    return max_norm / num_buckets.sqrt()
