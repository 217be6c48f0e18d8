"""The optimizer step of this rank: passes over the micro-batches, completed gradients, updated parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotuner.core.choices import GradientClip
from autotuner.core.layout import Layout
from autotuner.core.stages import ONE_STAGE_SCHEDULES, follows_signs, stages_of_rank
from autotuner.core.timeline import BlockKind
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.clipping import Overlap
from autotuner.training.pipelines.pipeline import ResilientPipeline
from autotuner.training.pipelines.standby import Standby
from autotuner.trials.distributed.fsdp_ddp import reshard
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.optimizer_shards import OptimizerShard, optimizer_shards
from autotuner.trials.distributed.parallelize import first_layer
from autotuner.trials.distributed.pipeline import Schedule, is_planned, pipeline_schedule
from autotuner.trials.distributed.tensor import TiedTables, loss_context, loss_of
from autotuner.trials.measurement.measure import Stopwatch
from autotuner.trials.measurement.step_timeline import ActionLog
from autotuner.trials.model.attention import kernel_context
from autotuner.trials.model.decoder import Loss
from autotuner.trials.rank import NonFiniteLoss
from autotuner.trials.step.data import Batch
from autotuner.trials.step.exchange import exchange_of
from autotuner.trials.step.optimizer import Peers, ShardedOptimizer, clip_before_reduction

# TokenMean: the loss of a micro-batch as its share of the mean over all tokens of the global batch.


class TokenMean:
    """A loss function: the sum of a micro-batch's losses, divided by the number of tokens of the whole step.

    If the sequences have different lengths, the number of tokens differs from step to step.

    Attributes:
        tokens_per_loss: The divisor for the current step (see ``Batch``).
    """

    def __init__(self, total: Loss) -> None:
        self._total = total
        self.tokens_per_loss = 1.0

    def __call__(self, logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        """Return the micro-batch's share of the mean loss."""
        return self._total(logits_BSV, labels_BS) / self.tokens_per_loss


# Forward and backward passes over a step's micro-batches: one after the other, or through a pipeline.

Passes = Callable[[Batch], Tensor]
"""Function that accumulates the gradients of one step and returns this replica's mean loss; 0 if this rank computes
none."""


class AccumulatedPasses:
    """Runs micro-batches one after the other, on a rank that holds every layer.

    Replicas reduce gradients once, after the last micro-batch. FSDP reduces gradients after each micro-batch, because a
    layout that shards gradients has no room for whole gradients. If parameters are not sharded between passes, they are
    gathered for the first micro-batch and used for all others.

    Args:
        model: The model.
        loss: Function that returns the part of the step's loss that a micro-batch contributes.
        before_last: Function that is called before the last micro-batch.
        log: Records every pass.
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
        """Accumulate the gradients of one step; return the mean loss of this replica."""
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
    """Runs the forward and backward passes of a step over all micro-batches, in the order of the pipeline schedule.

    It is used on a rank that holds some of the pipeline's stages.
    """

    schedule: Schedule
    loss: TokenMean
    has_first_stage: bool
    """True if this rank receives the tokens."""
    has_last_stage: bool
    """True if this rank computes the loss; in a V schedule, the first pipeline rank does both."""
    before_first: Callable[[], None]
    """Function that is called before the backward passes of a step."""

    def __call__(self, batch: Batch) -> Tensor:
        """Accumulate the gradients of one step.

        Return this replica's mean loss on the last stage, and 0 on the others.
        """
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


# One optimizer step of this rank: all micro-batches forward and backward, gradients completed, parameters updated.


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A repeatable training step of this rank: passes over all micro-batches, and an update of the parameters."""

    layout: Layout
    passes: Passes
    optimizer: ShardedOptimizer
    stopwatch: Stopwatch
    overlap: Overlap
    """Counts the gradients whose reduction starts while backward passes run."""

    def __call__(self, batch: Batch, *, number: int) -> float:
        """Train on the batch and return the loss: the mean over all tokens of the global batch, on every rank.

        Replicas with different parameters contribute the loss of their own tokens with their own parameters. The loss
        is summed over all ranks after the update, so no rank returns before the slowest one is done.

        Raises:
            NonFiniteLoss: The loss is infinite or NaN.
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
    def pipeline(self) -> ResilientPipeline | None:
        """The pipeline whose schedule and sending processes can change between steps.

        It is None if there is no pipeline, or if torch's own schedule runs the pipeline.
        """
        schedule = self.passes.schedule if isinstance(self.passes, PipelinePasses) else None
        return schedule if isinstance(schedule, ResilientPipeline) else None

    def evaluate(self, batch: Batch) -> float:
        """Return the mean loss of a batch over all ranks, without an update. Each replica uses its own parameters.

        Gradients are computed and then dropped. So the method works for every layout, and a pipeline runs its usual
        schedule. Do not train afterwards: an exchange of compressed gradients between replicas keeps a part of these
        gradients for the next step.
        """
        loss = self.global_loss(self.gradients(batch))
        self.optimizer.drop_gradients()
        return loss

    def gradients(self, batch: Batch) -> Tensor:
        """Compute the gradients of a batch, and return this replica's mean loss; 0 on a rank that computes no loss.

        Afterwards the optimizer has the gradients.
        """
        with kernel_context(self.layout), loss_context(self.layout):
            replica_loss = self.passes(batch)
        self.overlap.end_backward()
        self.optimizer.take_gradients()
        return replica_loss

    def global_loss(self, replica_loss: Tensor) -> float:
        """Return the mean loss over all replicas, on every rank.

        Only ranks of the last pipeline stage contribute to the sum. The tensor ranks of this stage all have the loss of
        the same tokens.
        """
        holders = self.layout.world_size // self.layout.pipeline_parallel_degree
        loss = replica_loss / holders
        dist.all_reduce(loss)
        return loss.item()


# When the gradients of a rank's stages begin to be reduced.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reductions:
    """Starts to reduce the gradients of a rank's optimizer shards while backward passes still run.

    So communication overlaps with computation.
    """

    early: Sequence[Sequence[OptimizerShard]]
    """Shards of each stage whose reduction starts before the optimizer takes their gradients."""
    overlap: Overlap
    """Counts the reductions that start before the last gradient."""

    def expect_backward_passes(self, num_left: int) -> None:
        """Announce that ``num_left`` backward passes through this rank's first stage are still to come in this step.

        The gradients of this stage may be reduced during the last of these passes.
        """
        for shard in self.early[0]:
            shard.expect_backward_passes(num_left)

    def start(self, stage: int) -> None:
        """Start to reduce the gradients of one stage over the ranks. Call it after the last backward pass of the stage.

        Args:
            stage: Number of the stage among the stages of this rank.
        """
        self.overlap.gradient()  # hooks do not run for weight gradients that a schedule computes separately
        for shard in self.early[stage]:
            shard.start_reduction()


# Puts a step together: passes over the micro-batches, loss and optimizer, around a parallel model.


def build_step(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    grid: Grid,
    stopwatch: Stopwatch,
    log: ActionLog | None = None,
    standby: Standby | None = None,
) -> Step:
    """Put together the training step of this rank: passes over the micro-batches, loss and optimizer. Return the step.

    Args:
        spec: The specification of the trial.
        stages: The stages of this rank, as ``parallel_stages`` returns them.
        grid: The grid of ranks, with this rank's place on it.
        stopwatch: Records the main moments of each step.
        log: Records every pass; None: passes are not recorded.
        standby: Sends the messages between stages if the pipeline runs our own list of actions (see ``is_planned``);
            None: the process group of the pipeline sends them.
    """
    stopwatch.mark_backward_of(first_layer(stages[0]), "first layer's gradient")
    overlap = Overlap()
    shards = [optimizer_shards(stage, spec, grid, overlap) for stage in stages]
    # a gradient that is clipped whole waits for the last backward pass, and for the optimizer to take it
    early = [[] if spec.layout.gradient_clip == GradientClip.PRE else of_stage for of_stage in shards]
    return Step(
        layout=spec.layout,
        passes=_passes(
            spec, stages, Reductions(early=early, overlap=overlap), grid, log or ActionLog(grid.device), standby
        ),
        optimizer=_optimizer(spec, list(chain.from_iterable(shards)), grid),
        stopwatch=stopwatch,
        overlap=overlap,
    )


def _optimizer(spec: TrialSpec, shards: Sequence[OptimizerShard], grid: Grid) -> ShardedOptimizer:
    layout, max_norm = spec.layout, spec.settings.max_gradient_norm
    indices = [index for index, shard in enumerate(shards) if shard.is_tied]
    tied = TiedTables(indices, grid.pipeline) if indices else None
    clip_whole = clip_before_reduction(shards, grid, max_norm, tied)
    return ShardedOptimizer(
        shards,
        settings=spec.trained_by,
        kernel=layout.optimizer_kernel,
        max_gradient_norm=max_norm if layout.gradient_clip == GradientClip.POST else None,
        follows_signs=bool(follows_signs(layout)),
        peers=Peers(
            gradient=grid.gradient,
            before_reduction=clip_whole,
            tied=tied if clip_whole is None else None,  # clipping the whole gradient has already summed its copies
            exchange=partial(exchange_of, layout, group=grid.axis("dp_replicate").get_group(), tied=indices),
        ),
    )


def _passes(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    reductions: Reductions,
    grid: Grid,
    log: ActionLog,
    standby: Standby | None,
) -> Passes:
    layout, num_micro_batches = spec.layout, spec.workload.num_micro_batches(spec.layout)
    loss = TokenMean(loss_of(layout, grid.axis("tp"), spec.model.vocab_size))

    if layout.pipeline_parallel_degree > 1:
        indices = stages_of_rank(layout, grid.position("pp"))
        in_torchs_order = layout.pipeline_schedule in ONE_STAGE_SCHEDULES and not is_planned(spec)
        return PipelinePasses(
            schedule=pipeline_schedule(
                stages, spec, grid, loss=loss, start_reduction=reductions.start, log=log, standby=standby
            ),
            loss=loss,
            has_first_stage=0 in indices,
            has_last_stage=layout.num_stages - 1 in indices,
            # schedules of several stages, and planned ones, say themselves when a stage's last backward pass is done
            before_first=partial(reductions.expect_backward_passes, num_micro_batches if in_torchs_order else 0),
        )
    return AccumulatedPasses(
        stages[0],
        loss=loss,
        before_last=partial(reductions.expect_backward_passes, 1),
        log=log,
    )
