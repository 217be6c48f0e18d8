"""One optimizer step of this rank: all micro-batches forward and backward, gradients completed, parameters updated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from autotuner.core.layout import Layout
from trials.clipping.overlap import Overlap
from trials.distributed.loss import loss_context
from trials.measurement.stopwatch import Stopwatch
from trials.model.attention import kernel_context
from trials.pipelines.pipeline import PlannedPipeline
from trials.runtime.failure import NonFiniteLoss
from trials.training.data import Batch
from trials.training.optimizer import ShardedOptimizer
from trials.training.passes import Passes, PipelinePasses


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimizer step, ready to be repeated.

    Attributes:
        overlap: Counts the gradients whose reduction starts while backward passes run.
    """

    layout: Layout
    passes: Passes
    optimizer: ShardedOptimizer
    stopwatch: Stopwatch
    overlap: Overlap

    def __call__(self, batch: Batch, *, number: int) -> float:
        """Train on the batch and return the loss: the mean over all tokens of the global batch, on every rank.

        Replicas whose parameters differ each add that of their own tokens through their own.

        The loss is summed over all ranks after the update, so no rank returns before the slowest one is done.

        Raises:
            NonFiniteLoss: It is infinite or no number.
        """
        self.stopwatch.mark("start")
        replica_loss = self.gradients(batch)
        self.stopwatch.mark("gradients complete")
        self.optimizer.step(self.stopwatch.mark)
        self.stopwatch.mark("end")
        loss = self.global_loss(replica_loss)
        if not math.isfinite(loss):
            raise NonFiniteLoss(number, loss)
        return loss

    @property
    def pipeline(self) -> PlannedPipeline | None:
        """The pipeline whose order and senders can change between steps; None where torch's own runs, or none."""
        schedule = self.passes.schedule if isinstance(self.passes, PipelinePasses) else None
        return schedule if isinstance(schedule, PlannedPipeline) else None

    def evaluate(self, batch: Batch) -> float:
        """The loss of a batch without an update, on every rank: the mean over ranks, each with its own parameters.

        Gradients are computed and thrown away, so that each way to spread a model over ranks can be asked, and a
        pipeline's schedule runs as it always does. Nothing may be trained behind it: a lossy exchange has seen them.
        """
        loss = self.global_loss(self.gradients(batch))
        self.optimizer.drop_gradients()
        return loss

    def gradients(self, batch: Batch) -> Tensor:
        """Leave the gradients that it takes with the optimizer; return what ``Passes`` does."""
        with kernel_context(self.layout), loss_context(self.layout):
            replica_loss = self.passes(batch)
        self.overlap.end_backward()
        self.optimizer.take_gradients()
        return replica_loss

    def global_loss(self, replica_loss: Tensor) -> float:
        """The mean loss over all replicas, known to every rank.

        Only the last pipeline stage adds to the sum; there each part of a sequence is held by all tensor ranks.
        """
        holders = self.layout.world_size // self.layout.pipeline_parallel_degree
        loss = replica_loss / holders
        dist.all_reduce(loss)
        return loss.item()
