"""AdamW on what each rank holds."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

__all__ = ["ShardedAdamW"]


class ShardedAdamW:
    """AdamW (arXiv 1711.05101) over fp32 master weights, element by element on each rank's own shard.

    AdamW treats every element alone, so it needs no DTensor: the fused kernel runs on the local tensors, whichever
    axes they are split over. An fp32 parameter is its own master; a bf16 one has a copy (mixed precision of
    arXiv 1710.03740, section 3.1), written back after each step. The moments exist from the start, so the first
    step needs as much memory as all others.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, learning_rate: float) -> None:
        self._parameters = [p for p in parameters if p.requires_grad]
        self._masters = [local_part(p.detach()).float() for p in self._parameters]
        self._adamw = torch.optim.AdamW(self._masters, lr=learning_rate, fused=True)
        for master in self._masters:
            self._adamw.state[master] = {
                "step": torch.zeros((), device=master.device),
                "exp_avg": torch.zeros_like(master),
                "exp_avg_sq": torch.zeros_like(master),
            }

    def complete_gradients(self) -> None:
        """Sum what is still spread: a norm's gradient under sequence parallelism is a part on each tensor rank."""
        for parameter in self._parameters:
            gradient = parameter.grad
            if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
                parameter.grad = gradient.redistribute(placements=parameter.placements)

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters and forget the gradients."""
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            assert parameter.grad is not None, "every parameter takes part in every step"
            master.grad = local_part(parameter.grad).float()
            parameter.grad = None
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            held = local_part(parameter.detach())
            if held.dtype != master.dtype:
                held.copy_(master)


def local_part(tensor: Tensor) -> Tensor:
    """This rank's shard of a DTensor, sharing its memory; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
