"""One optimizer step of this rank: all micro-batches forward and backward, gradients completed, parameters updated."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.domain.layout import Layout
from trials.distributed.data.fsdp_ddp import reshard
from trials.measurement.stopwatch import Stopwatch
from trials.model.attention import kernel_context
from trials.model.loss import Loss, loss_context
from trials.runtime.failure import NonFiniteLoss
from trials.training.data import Batch
from trials.training.optimizer import ShardedAdamW

__all__ = ["AccumulatedPasses", "Passes", "Step"]

Passes = Callable[[Batch], Tensor]
"""Accumulates the gradients of one step and returns this replica's mean loss, 0 where this rank computes none."""


class AccumulatedPasses:
    """Micro-batches one after the other, for a rank that holds every layer.

    Replicas reduce gradients once, after the last. FSDP reduces after each: whoever shards gradients has no room for
    whole ones. Where it shards no parameters, those gathered for the first micro-batch serve all others.
    ``before_last`` is told that the last backward pass comes.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        micro_batch_size: int,
        num_micro_batches: int,
        loss: Loss,
        before_last: Callable[[], None],
    ) -> None:
        self._model = model
        self._micro_batch_size = micro_batch_size
        self._num_micro_batches = num_micro_batches
        self._loss = loss
        self._before_last = before_last

    def __call__(self, batch: Batch) -> Tensor:
        """See ``Passes``."""
        reshard(self._model)  # what the step before gathered is not updated
        total = torch.zeros((), device=batch.tokens_BS.device)
        for index, (tokens_BS, labels_BS) in enumerate(batch.micro_batches(self._micro_batch_size), start=1):
            is_last = index == self._num_micro_batches
            if is_last:
                self._before_last()
            with nullcontext() if is_last else self._unsynchronised():
                loss = self._loss(self._model(tokens_BS), labels_BS) / self._num_micro_batches
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def _unsynchronised(self) -> AbstractContextManager[None]:
        return self._model.no_sync() if isinstance(self._model, DistributedDataParallel) else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer step, ready to be repeated."""

    layout: Layout
    passes: Passes
    optimizer: ShardedAdamW
    stopwatch: Stopwatch

    def __call__(self, batch: Batch, *, number: int) -> float:
        """Train on the batch and return the loss: the mean over all tokens of the global batch, on every rank.

        The loss is summed over all ranks after the update, so no rank returns before the slowest one is done.

        Raises:
            NonFiniteLoss: It is infinite or no number.
        """
        self.stopwatch.mark("start")
        replica_loss = self.gradients(batch)
        self.stopwatch.mark("gradients complete")
        self.optimizer.step()
        self.stopwatch.mark("end")
        loss = self._over_all_ranks(replica_loss)
        if not math.isfinite(loss):
            raise NonFiniteLoss(number, loss)
        return loss

    def gradients(self, batch: Batch) -> Tensor:
        """Leave the gradients of the global batch with the optimizer; return what ``Passes`` does."""
        with kernel_context(self.layout), loss_context(self.layout):
            replica_loss = self.passes(batch)
        self.optimizer.take_gradients()
        return replica_loss

    def _over_all_ranks(self, replica_loss: Tensor) -> float:
        """Only the last pipeline stage adds to the sum; there each part of a sequence is held by all tensor ranks."""
        holders = self.layout.world_size // self.layout.pipeline_parallel_degree
        loss = replica_loss / holders
        dist.all_reduce(loss)
        return loss.item()
