"""Puts a step together: passes over the micro-batches, loss and optimizer, around a parallel model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import nn

from autotuner.domain.trial import TrialSpec
from trials.distributed.data.optimizer_shard import Share
from trials.distributed.data.optimizer_shards import shares_of
from trials.distributed.mesh import Grid
from trials.distributed.parallelize import first_layer
from trials.distributed.pipeline import PipelinePasses
from trials.distributed.tied import TiedTables
from trials.measurement.stopwatch import Stopwatch
from trials.model.loss import loss_of
from trials.training.optimizer import ShardedAdamW
from trials.training.step import AccumulatedPasses, Passes, Step

__all__ = ["build_step"]


def build_step(
    spec: TrialSpec, stages: Sequence[nn.Module], grid: Grid, device: torch.device, stopwatch: Stopwatch
) -> Step:
    """The optimizer step of this rank around its ``parallel_stages``, followed by the stopwatch."""
    stopwatch.mark_backward_of(first_layer(stages[0]), "first layer's gradient")
    shares = [shares_of(stage, spec, grid) for stage in stages]
    return Step(
        layout=spec.layout,
        passes=_passes(spec, stages, shares, grid, device),
        optimizer=_optimizer(spec, list(chain.from_iterable(shares)), grid),
        stopwatch=stopwatch,
    )


def _optimizer(spec: TrialSpec, shares: Sequence[Share], grid: Grid) -> ShardedAdamW:
    places = [place for place, share in enumerate(shares) if share.is_tied]
    return ShardedAdamW(
        shares,
        learning_rate=spec.settings.learning_rate,
        kernel=spec.layout.optimizer_kernel,
        max_gradient_norm=spec.settings.max_gradient_norm,
        tied=TiedTables(places, grid.axis("pp")) if places else None,
    )


def _passes(
    spec: TrialSpec,
    stages: Sequence[nn.Module],
    shares: Sequence[Sequence[Share]],
    grid: Grid,
    device: torch.device,
) -> Passes:
    loss = loss_of(spec.layout, grid.axis("tp"), spec.model.vocab_size)
    if spec.layout.pipeline_parallel_degree > 1:

        def start_reduction(place: int) -> None:
            for share in shares[place]:
                share.start_reduction()

        return PipelinePasses(stages, spec, grid, device, loss=loss, reduce=start_reduction)

    def expect_last_backward() -> None:
        for share in shares[0]:
            share.expect_last_backward()

    return AccumulatedPasses(
        stages[0],
        micro_batch_size=spec.layout.micro_batch_size,
        num_micro_batches=spec.workload.num_micro_batches(spec.layout),
        loss=loss,
        before_last=expect_last_backward,
    )
