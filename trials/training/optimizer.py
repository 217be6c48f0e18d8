"""AdamW on what each rank holds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autotuner.domain.layouts.choice import OptimizerKernel
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.tied import TiedTables
from trials.training.clip import clip, total_norm

__all__ = ["ShardedAdamW"]


class ShardedAdamW:
    """AdamW (arXiv 1711.05101) over fp32 master weights, element by element on each rank's own shards.

    AdamW treats every element alone, so it needs no DTensor: its kernel runs on the local tensors, whichever axes
    they are split over. An fp32 parameter is its own master; a bf16 one has a copy (mixed precision of
    arXiv 1710.03740, section 3.1), written back after each step. The moments exist from the start, so the first
    step needs as much memory as all others.
    """

    def __init__(
        self,
        shards: Sequence[OptimizerShard],
        *,
        learning_rate: float,
        kernel: OptimizerKernel = OptimizerKernel.FUSED,
        max_gradient_norm: float | None = None,
        tied: TiedTables | None = None,
    ) -> None:
        self.shards = shards
        self._tied = tied
        self._max_gradient_norm = max_gradient_norm
        self._masters = [shard.values() for shard in shards]
        fused = kernel == OptimizerKernel.FUSED
        self._adamw = torch.optim.AdamW(self._masters, lr=learning_rate, fused=fused, foreach=not fused)
        for master in self._masters:
            self._adamw.state[master] = {
                # as AdamW itself does: a kernel per operation computes with the step's number on the host
                "step": torch.zeros((), device=master.device if fused else "cpu"),
                "exp_avg": torch.zeros_like(master),
                "exp_avg_sq": torch.zeros_like(master),
            }

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the shards in fp32, once they are taken."""
        return [master.grad for master in self._masters if master.grad is not None]

    def take_gradients(self) -> None:
        """Complete the gradients of the global batch and take them from the parameters."""
        for shard in self.shards:
            shard.start_reduction()
        for shard, master in zip(self.shards, self._masters, strict=True):
            master.grad = shard.take_gradient()
        if self._tied is not None:
            self._tied.sum(self.gradients)

    def gradient_norm(self) -> Tensor:
        """Norm of the whole model's gradient, the same on every rank."""
        return total_norm(self.gradients, [shard.num_replicas for shard in self.shards])

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters by the gradients taken, and forget these."""
        if self._max_gradient_norm is not None:
            clip(self.gradients, self.gradient_norm(), self._max_gradient_norm)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        for shard, master in zip(self.shards, self._masters, strict=True):
            shard.write(master)
