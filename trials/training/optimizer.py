"""The optimizer on what each rank holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import OptimizerKernel
from autotuner.core.trial_spec import OptimizerSettings
from trials.clipping.bound import clip
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.tied import TiedTables
from trials.training.clip import total_norm
from trials.training.exchange import Exchange
from trials.training.local_optimizer import local_optimizer
from trials.training.sign_descent import SignDescent


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Whom the gradients of a rank concern beside itself.

    Attributes:
        gradient: The ranks that hold one gradient together; None: the whole job.
        before_reduction: Called when all backward passes of a step are done, before what is left to be reduced is.
        tied: Copies of a table, of which this rank holds one or two and whose reduced gradients are one sum.
        exchange: Makes what replicas exchange, for such masters; it makes None where they sum their gradients.
    """

    gradient: dist.ProcessGroup | None = None
    before_reduction: Callable[[], None] | None = None
    tied: TiedTables | None = None
    exchange: Callable[[Sequence[Tensor]], Exchange | None] = lambda masters: None


_EVERYBODY = Peers()


def _unheard(moment: str) -> None:
    """Nobody follows the moments of a step."""


class ShardedOptimizer:
    """An optimizer over fp32 master weights, on each rank's own shards.

    AdamW treats every element alone, so it needs no DTensor: its kernel runs on the local tensors, whichever axes
    they are split over. Only LAMB needs whole tensors, and is refused where ranks hold parts. An fp32 parameter is its
    own master; a bf16 one has a copy (mixed precision of arXiv 1710.03740, section 3.1), written back after each step.

    Args:
        shards: What this rank updates.
        settings: Of the optimizer.
        kernel: Its implementation.
        max_gradient_norm: What the gradient is scaled down to behind its reduction, and before a lossy exchange of it;
            None: it stays.
        follows_signs: Sign descent takes the place of the optimizer, at its learning rate.
        peers: Whom its gradients concern beside this rank.
    """

    def __init__(
        self,
        shards: Sequence[OptimizerShard],
        *,
        settings: OptimizerSettings,
        kernel: OptimizerKernel = OptimizerKernel.FUSED,
        max_gradient_norm: float | None = None,
        follows_signs: bool = False,
        peers: Peers = _EVERYBODY,
    ) -> None:
        self.shards = shards
        self._peers = peers
        self._max_gradient_norm = max_gradient_norm
        self._masters = [shard.values() for shard in shards]
        self.exchange = peers.exchange(self._masters)
        self._settings = settings
        self._optimizer = (
            SignDescent(self._masters, learning_rate=settings.learning_rate)
            if follows_signs
            else local_optimizer(self._masters, settings, kernel)
        )
        self._num_steps = 0

    @property
    def gradients(self) -> list[Tensor]:
        """The gradients of the shards in fp32, once they are taken."""
        return [master.grad for master in self._masters if master.grad is not None]

    def take_gradients(self) -> None:
        """Complete the gradients that the update takes, and take them from the parameters.

        They are those of the global batch, or what replicas exchange of theirs, each clipped by itself before.
        """
        if self._peers.before_reduction is not None:
            self._peers.before_reduction()
        for shard in self.shards:
            shard.start_reduction()
        for shard, master in zip(self.shards, self._masters, strict=True):
            master.grad = shard.take_gradient()
        if self._peers.tied is not None:
            self._peers.tied.sum(self.gradients)
        if self.exchange is not None:
            self._clip()
            for master, agreed in zip(self._masters, self.exchange.gradients(self.gradients), strict=True):
                master.grad = agreed

    def drop_gradients(self) -> None:
        """Forget the gradients taken."""
        self._optimizer.zero_grad(set_to_none=True)

    def gradient_norm(self) -> Tensor:
        """Norm of the whole model's gradient: one for all ranks, or one for each replica that exchanges less."""
        return total_norm(self.gradients, [shard.num_replicas for shard in self.shards], (self._peers.gradient,))

    @torch.no_grad()
    def step(self, mark: Callable[[str], None] = _unheard) -> None:
        """Update the parameters by the gradients taken, and forget these.

        ``mark`` hears when they are ``updated``, and when replicas have ``agreed`` on them.
        """
        if self.exchange is None:
            self._clip()
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate_at(self._num_steps)
        self._optimizer.step()
        self.drop_gradients()
        self._num_steps += 1
        mark("updated")
        if self.exchange is not None:
            self.exchange.parameters()
        mark("agreed")
        for shard, master in zip(self.shards, self._masters, strict=True):
            shard.write(master)

    def _clip(self) -> None:
        if self._max_gradient_norm is not None:
            clip(self.gradients, self.gradient_norm(), self._max_gradient_norm)

    def state_dict(self) -> dict[str, Any]:
        """What this rank must keep to go on where it stopped: the masters, and what update and exchange remember."""
        return {
            "masters": [master.clone() for master in self._masters],
            "optimizer": self._optimizer.state_dict(),
            "num_steps": self._num_steps,
            "exchange": self.exchange.state_dict() if self.exchange is not None else None,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, on a rank that holds the same shards."""
        for shard, master, saved in zip(self.shards, self._masters, state["masters"], strict=True):
            master.copy_(saved)
            shard.write(master)
        self._optimizer.load_state_dict(state["optimizer"])
        self._num_steps = state["num_steps"]
        if self.exchange is not None:
            self.exchange.load_state_dict(state["exchange"])
