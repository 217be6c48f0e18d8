"""Forward and backward passes over a step's micro-batches: one after the other, or through a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.timeline import BlockKind
from trials.distributed.data.fsdp_ddp import reshard
from trials.distributed.pipeline import Schedule
from trials.measurement.action_log import ActionLog
from trials.training.data import Batch
from trials.training.token_mean import TokenMean

Passes = Callable[[Batch], Tensor]
"""Accumulates the gradients of one step and returns this replica's mean loss, 0 where this rank computes none."""


class AccumulatedPasses:
    """Micro-batches one after the other, for a rank that holds every layer.

    Replicas reduce gradients once, after the last. FSDP reduces after each: whoever shards gradients has no room for
    whole ones. Where it shards no parameters, those gathered for the first micro-batch serve all others.
    ``before_last`` is told that the last backward pass comes, ``log`` of every pass.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: TokenMean,
        before_last: Callable[[], None],
        log: ActionLog,
    ) -> None:
        self._model = model
        self._loss = loss
        self._before_last = before_last
        self._log = log

    def __call__(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of one step; the mean loss of this replica."""
        reshard(self._model)  # what the step before gathered is not updated
        self._loss.tokens_per_loss = batch.tokens_per_loss
        total = torch.zeros((), device=batch.micro_batches[0].tokens_BS.device)
        for index, one in enumerate(batch.micro_batches):
            is_last = index == len(batch.micro_batches) - 1
            if is_last:
                self._before_last()
            with nullcontext() if is_last else self._unsynchronised():
                with self._log.running(BlockKind.FORWARD, 0, index):
                    # no name for the logits: it would keep them through the backward pass
                    loss = self._loss(self._model(one.tokens_BS, one.documents), one.labels_BS)
                with self._log.running(BlockKind.BACKWARD, 0, index):
                    loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def _unsynchronised(self) -> AbstractContextManager[None]:
        return self._model.no_sync() if isinstance(self._model, DistributedDataParallel) else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePasses:
    """All forwards and backwards of a step, run by a pipeline schedule over the micro-batches.

    Attributes:
        has_first_stage: This rank is fed the tokens.
        has_last_stage: It computes the loss; in a V, the first pipeline rank does both.
        before_first: Told that the backward passes of a step are to come.
    """

    schedule: Schedule
    loss: TokenMean
    has_first_stage: bool
    has_last_stage: bool
    before_first: Callable[[], None]

    def __call__(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of one step; the mean loss of this replica on the last stage, 0 on the others."""
        self.before_first()
        self.loss.tokens_per_loss = batch.tokens_per_loss
        whole = batch.together()
        inputs = (whole.tokens_BS,) if self.has_first_stage else ()
        losses: list[Tensor] = []
        target = whole.labels_BS if self.has_last_stage else None
        self.schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        if not losses:
            return torch.zeros((), device=whole.tokens_BS.device)
        return torch.stack([loss.detach() for loss in losses]).sum()
