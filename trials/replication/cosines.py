"""Cosine components of chunks: which of them move fast, and back."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cosine_basis(width: int, device: torch.device) -> Tensor:
    """The orthonormal discrete cosine transform (type II) as a matrix ``[component, element]``, its inverse transposed.

    A product with it is faster than a fast transform for chunks as short as ours, and runs on every device.
    """
    element = torch.arange(width, dtype=torch.float64)
    component = element.unsqueeze(1)
    basis = torch.cos(math.pi / width * (element + 0.5) * component) * math.sqrt(2.0 / width)
    basis[0] /= math.sqrt(2.0)
    return basis.float().to(device)
