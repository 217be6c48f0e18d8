"""First values of the parameters: the same tensors for every layout, and never more of them at once than needed."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn

from autotuner.core.choices import Precision
from trials.model.experts import Experts

_STANDARD_DEVIATION = 0.02  # GPT-2's initializer_range; a trial trains a few steps, so nothing finer matters


def parameter_dtype(precision: Precision) -> torch.dtype:
    """Format of parameters, activations and gradients; the optimizer's own copies are fp32 (``optimizer``)."""
    return torch.float32 if precision == Precision.FP32 else torch.bfloat16


def materialise(module: nn.Module, path: str, *, seed: int, device: torch.device, dtype: torch.dtype) -> None:
    """Replace the meta parameters of a module by their first values, and its buffers by zeros.

    Every tensor has a generator of its own, seeded by the trial's seed and its name in the whole model, in which
    ``path`` is the module's. So its values depend neither on the layout nor on the order of construction. They are
    drawn on ``device`` (a GPU draws billions in well under a second): equal between layouts, not between kinds of
    device.
    """
    for name, parameter in list(module.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        part = module.get_submodule(owner)
        if isinstance(part, Experts):  # each expert's values have a name, whichever others lie beside it
            value = torch.empty(parameter.shape, device=device, dtype=dtype)
            for expert, index in zip(value, part.indices, strict=True):
                expert.copy_(_first_value(f"{path}.{owner}.{index}.{leaf}", expert.shape, seed, device))
        else:
            value = _first_value(f"{path}.{name}", parameter.shape, seed, device).to(dtype)
        setattr(part, leaf, nn.Parameter(value))
    for name, buffer in list(module.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, torch.zeros(buffer.shape, device=device))


def _first_value(name: str, shape: torch.Size, seed: int, device: torch.device) -> Tensor:
    if name.endswith("bias"):
        return torch.zeros(shape, device=device)
    if name.endswith("norm.weight"):
        return torch.ones(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    return torch.empty(shape, device=device).normal_(0.0, _STANDARD_DEVIATION, generator=generator)
