"""Puts a step together: passes over the micro-batches, loss and optimizer, around a parallel model."""

from __future__ import annotations

import torch
from torch import nn

from autotuner.domain.trial import TrialSpec
from trials.loss import Loss, cross_entropy, vocabulary_parallel_cross_entropy
from trials.mesh import Grid
from trials.optimizer import ShardedAdamW
from trials.parallelize import first_layer
from trials.pipeline import PipelinePasses
from trials.step import AccumulatedPasses, Passes, Step
from trials.stopwatch import Stopwatch

__all__ = ["build_step"]


def build_step(spec: TrialSpec, model: nn.Module, grid: Grid, device: torch.device, stopwatch: Stopwatch) -> Step:
    """The optimizer step of this rank around its ``parallel_decoder``, followed by the stopwatch."""
    stopwatch.mark_backward_of(first_layer(model), "first layer's gradient")
    return Step(
        layout=spec.layout,
        passes=_passes(spec, model, grid, device),
        optimizer=ShardedAdamW(model.parameters(), learning_rate=spec.settings.learning_rate),
        stopwatch=stopwatch,
    )


def _passes(spec: TrialSpec, model: nn.Module, grid: Grid, device: torch.device) -> Passes:
    loss = _loss(spec, grid)
    if spec.layout.pipeline_parallel_degree > 1:
        return PipelinePasses(model, spec, grid, device, loss)
    return AccumulatedPasses(
        model,
        micro_batch_size=spec.layout.micro_batch_size,
        num_micro_batches=spec.workload.num_micro_batches(spec.layout),
        loss=loss,
    )


def _loss(spec: TrialSpec, grid: Grid) -> Loss:
    if spec.layout.tensor_parallel_degree == 1:
        return cross_entropy
    return vocabulary_parallel_cross_entropy(grid.axis("tp"), spec.model.vocab_size)
