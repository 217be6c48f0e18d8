"""Puts a step together: passes over the micro-batches, loss and optimizer, around a parallel model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import torch
from torch import nn

from autotuner.core.choices import GradientClip
from autotuner.core.stages import ONE_STAGE_SCHEDULES, follows_signs, stages_of_rank
from autotuner.core.trial_spec import TrialSpec
from trials.clipping.overlap import Overlap
from trials.distributed.data.optimizer_shard import OptimizerShard
from trials.distributed.data.partition import optimizer_shards
from trials.distributed.loss import loss_of
from trials.distributed.mesh import Grid
from trials.distributed.parallelize import first_layer
from trials.distributed.pipeline import pipeline_schedule
from trials.distributed.senders import Senders, is_planned
from trials.distributed.tied import TiedTables
from trials.measurement.action_log import ActionLog
from trials.measurement.stopwatch import Stopwatch
from trials.training.clip import clip_before_reduction
from trials.training.exchange import exchange_of
from trials.training.optimizer import Peers, ShardedOptimizer
from trials.training.passes import AccumulatedPasses, Passes, PipelinePasses
from trials.training.reductions import Reductions
from trials.training.step import Step
from trials.training.token_mean import TokenMean


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
    overlap = Overlap()
    shards = [optimizer_shards(stage, spec, grid, overlap) for stage in stages]
    # a gradient that is clipped whole waits for the last backward pass, and for the optimizer to take it
    early = [[] if spec.layout.gradient_clip == GradientClip.PRE else of_stage for of_stage in shards]
    return Step(
        layout=spec.layout,
        passes=_passes(
            spec, stages, Reductions(early=early, overlap=overlap), grid, device, log or ActionLog(device), senders
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
            tied=tied if clip_whole is None else None,  # who clips a gradient whole has summed its copies before
            exchange=partial(exchange_of, layout, group=grid.axis("dp_replicate").get_group(), tied=indices),
        ),
    )


def _passes(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    reductions: Reductions,
    grid: Grid,
    device: torch.device,
    log: ActionLog,
    senders: Senders | None,
) -> Passes:
    layout, num_micro_batches = spec.layout, spec.workload.num_micro_batches(spec.layout)
    loss = TokenMean(loss_of(layout, grid.axis("tp"), spec.model.vocab_size))

    if layout.pipeline_parallel_degree > 1:
        indices = stages_of_rank(layout, grid.position("pp"))
        in_torchs_order = layout.pipeline_schedule in ONE_STAGE_SCHEDULES and not is_planned(spec)
        return PipelinePasses(
            schedule=pipeline_schedule(
                stages, spec, grid, device, loss=loss, start_reduction=reductions.start, log=log, senders=senders
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
