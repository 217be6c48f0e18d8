"""Puts a step together: passes over the micro-batches, loss and optimizer, around a parallel model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import nn

from autotuner.domain.jobs.stages import stages_of_rank
from autotuner.domain.runs.trial import TrialSpec
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.data.partition import optimizer_shards
from trials.distributed.loss import loss_of
from trials.distributed.mesh import Grid
from trials.distributed.parallelize import first_layer
from trials.distributed.pipeline import pipeline_schedule
from trials.distributed.senders import Senders
from trials.distributed.tied import TiedTables
from trials.measurement.action_log import ActionLog
from trials.measurement.stopwatch import Stopwatch
from trials.training.optimizer import ShardedOptimizer
from trials.training.passes import AccumulatedPasses, Passes, PipelinePasses
from trials.training.step import Step

__all__ = ["build_step"]


def build_step(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    grid: Grid,
    device: torch.device,
    stopwatch: Stopwatch,
    log: ActionLog | None = None,
    senders: Senders | None = None,
) -> Step:
    """The optimizer step of this rank around its ``parallel_stages``, followed by the stopwatch.

    ``log`` hears of every pass. ``senders`` send for a planned pipeline; without them its process group does.
    """
    stopwatch.mark_backward_of(first_layer(stages[0]), "first layer's gradient")
    shards = [optimizer_shards(stage, spec, grid) for stage in stages]
    return Step(
        layout=spec.layout,
        passes=_passes(spec, stages, shards, grid, device, log or ActionLog(device), senders),
        optimizer=_optimizer(spec, list(chain.from_iterable(shards)), grid),
        stopwatch=stopwatch,
    )


def _optimizer(spec: TrialSpec, shards: Sequence[OptimizerShard], grid: Grid) -> ShardedOptimizer:
    tied = [index for index, shard in enumerate(shards) if shard.is_tied]
    return ShardedOptimizer(
        shards,
        settings=spec.trained_by,
        kernel=spec.layout.optimizer_kernel,
        max_gradient_norm=spec.settings.max_gradient_norm,
        tied=TiedTables(tied, grid.pipeline) if tied else None,
    )


def _passes(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    shards: Sequence[Sequence[OptimizerShard]],
    grid: Grid,
    device: torch.device,
    log: ActionLog,
    senders: Senders | None,
) -> Passes:
    loss = loss_of(spec.layout, grid.axis("tp"), spec.model.vocab_size)
    if spec.layout.pipeline_parallel_degree > 1:

        def start_reduction(stage: int) -> None:
            for shard in shards[stage]:
                shard.start_reduction()

        schedule = pipeline_schedule(
            stages, spec, grid, device, loss=loss, start_reduction=start_reduction, log=log, senders=senders
        )
        indices = stages_of_rank(spec.layout, grid.position("pp"))
        return PipelinePasses(
            schedule=schedule, has_first_stage=0 in indices, has_last_stage=spec.layout.num_stages - 1 in indices
        )

    def expect_last_backward() -> None:
        for shard in shards[0]:
            shard.expect_last_backward()

    return AccumulatedPasses(
        stages[0],
        micro_batch_size=spec.layout.micro_batch_size,
        num_micro_batches=spec.workload.num_micro_batches(spec.layout),
        loss=loss,
        before_last=expect_last_backward,
        log=log,
    )
