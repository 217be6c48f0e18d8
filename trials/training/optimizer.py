"""The optimizer on what each rank holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autotuner.domain.layouts.choice import OptimizerKernel
from autotuner.domain.runs.optimizer import OptimizerSettings
from trials.clipping.bound import clip
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.tied import TiedTables
from trials.training.clip import total_norm
from trials.training.local_optimizer import local_optimizer

__all__ = ["ShardedOptimizer"]


class ShardedOptimizer:
    """An optimizer over fp32 master weights, on each rank's own shards.

    AdamW treats every element alone, so it needs no DTensor: its kernel runs on the local tensors, whichever axes
    they are split over. Only LAMB needs whole tensors, and is refused where ranks hold parts. An fp32 parameter is its
    own master; a bf16 one has a copy (mixed precision of arXiv 1710.03740, section 3.1), written back after each step.

    Args:
        shards: What this rank updates.
        settings: Of the optimizer.
        kernel: Its implementation.
        max_gradient_norm: What the reduced gradient of the whole model is scaled down to; None: it stays.
        before_reduction: Called when all backward passes of a step are done, before what is left to be reduced is.
        tied: Copies of a table whose reduced gradients are one sum.
    """

    def __init__(
        self,
        shards: Sequence[OptimizerShard],
        *,
        settings: OptimizerSettings,
        kernel: OptimizerKernel = OptimizerKernel.FUSED,
        max_gradient_norm: float | None = None,
        before_reduction: Callable[[], None] | None = None,
        tied: TiedTables | None = None,
    ) -> None:
        self.shards = shards
        self._tied = tied
        self._before_reduction = before_reduction
        self._max_gradient_norm = max_gradient_norm
        self._masters = [shard.values() for shard in shards]
        self._settings = settings
        self._optimizer = local_optimizer(self._masters, settings, kernel)
        self._num_steps = 0

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the shards in fp32, once they are taken."""
        return [master.grad for master in self._masters if master.grad is not None]

    def take_gradients(self) -> None:
        """Complete the gradients of the global batch and take them from the parameters."""
        if self._before_reduction is not None:
            self._before_reduction()
        for shard in self.shards:
            shard.start_reduction()
        for shard, master in zip(self.shards, self._masters, strict=True):
            master.grad = shard.take_gradient()
        if self._tied is not None:
            self._tied.sum(self.gradients)

    def drop_gradients(self) -> None:
        """Forget the gradients taken."""
        self._optimizer.zero_grad(set_to_none=True)

    def gradient_norm(self) -> Tensor:
        """Norm of the whole model's gradient, the same on every rank."""
        return total_norm(self.gradients, [shard.num_replicas for shard in self.shards])

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters by the gradients taken, and forget these."""
        if self._max_gradient_norm is not None:
            clip(self.gradients, self.gradient_norm(), self._max_gradient_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate_at(self._num_steps)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._num_steps += 1
        for shard, master in zip(self.shards, self._masters, strict=True):
            shard.write(master)
