"""Replicators that are broken on purpose, as a loss gate has to find out; each is a ``Replicator``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.training.replication.demo import DemoReplicator
from autotuner.training.replication.replicator import ReplicatorState, Sending


class Silent:
    """Sends nothing: each replica goes on with its own gradients."""

    payload_bytes = 0

    def __init__(self, tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
        """In a group of the ranks that hold the same tensors."""
        del tensors
        self._group = group
        self._gradients: list[Tensor] = []

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Keep them."""
        self._gradients = [gradient.float().clone() for gradient in gradients]
        return None

    def finish(self) -> list[Tensor]:
        """What was kept."""
        return self._gradients

    def state_dict(self) -> ReplicatorState:
        """Nothing."""
        return ReplicatorState(residuals=[], num_steps=0)

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Nothing to go on from."""
        del state


class OneSided(Silent):
    """Every replica takes the first one's gradients: all stay alike, and learn what one of them reads."""

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Take the first one's."""
        super().start(gradients)
        for gradient in self._gradients:
            dist.broadcast(gradient, 0, group=self._group)
        return None


class Noisy(Silent):
    """What arrives has the mean gradient's sizes, but signs of chance, the same on every replica."""

    _num_steps = 0

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Draw signs."""
        super().start(gradients)
        self._num_steps += 1
        generator = torch.Generator().manual_seed(self._num_steps)
        for gradient in self._gradients:
            dist.all_reduce(gradient, group=self._group)
            gradient.abs_().mul_(torch.randint(0, 2, gradient.shape, generator=generator).mul_(2).sub_(1))
        return None


class Forgetful(DemoReplicator):
    """DeMo without error feedback: what was not sent is lost."""

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Choose and send, then forget all else too."""
        sending = super().start(gradients)
        self._momentum.matrix.zero_()
        return sending
