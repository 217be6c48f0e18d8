"""Fewer layers and micro-batches than a job has, and the job's own figures from those of the smaller ones.

From a few layers per stage on, all that a rank holds and computes is linear in them; and in the micro-batches, once
there are enough to fill the pipeline and to accumulate gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from autotuner.core.choices import PipelineSchedule
from autotuner.core.stages import ONE_STAGE_SCHEDULES, layers_per_stage, next_alike, with_layers_per_stage
from autotuner.core.trial_spec import TrialSpec

_FEWEST_LAYERS = 4
"""Layers of a stage: with fewer, the peak of one that holds the vocabulary may lie in the loss (torch 2.13, seen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """The jobs to run in place of one.

    Attributes:
        layers: Layers per stage to run, two numbers, or one where that is all there are.
        micro_batches: Micro-batches to run, two numbers, or one where that is all there are.
    """

    spec: TrialSpec
    layers: tuple[int, ...]
    micro_batches: tuple[int, ...]

    @classmethod
    def of(cls, spec: TrialSpec, *, exact: bool) -> Extrapolation:
        """The smallest jobs that tell about this one; the job itself if the answer is to be exact."""
        layers = layers_per_stage(spec.layout, spec.model.num_layers)
        micro_batches = spec.workload.num_micro_batches(spec.layout)
        if exact:
            return cls(spec=spec, layers=(layers,), micro_batches=(micro_batches,))
        return cls(
            spec=spec,
            layers=_two_or_all(_few_layers(spec), layers),
            micro_batches=_two_or_all(_few_micro_batches(spec), micro_batches),
        )

    @property
    def is_whole(self) -> bool:
        """The job itself runs."""
        return len(self.layers) == len(self.micro_batches) == 1

    def specs(self) -> list[TrialSpec]:
        """The jobs to run."""
        return [_smaller(self.spec, *size) for size in product(self.layers, self.micro_batches)]

    def weights(self) -> list[float]:
        """What each job's figure is multiplied with, so that their sum is the figure of the whole job."""
        by_layers = _weights(self.layers, layers_per_stage(self.spec.layout, self.spec.model.num_layers))
        by_micro_batches = _weights(self.micro_batches, self.spec.workload.num_micro_batches(self.spec.layout))
        return [left * right for left, right in product(by_layers, by_micro_batches)]


def _few_layers(spec: TrialSpec) -> tuple[int, int]:
    """Two numbers of layers after which the patterns of recomputing and sparse layers are where the stage ends."""
    layout, experts = spec.layout, spec.model.experts
    fewest = _FEWEST_LAYERS + max(layout.first_stage_less_layers, layout.last_stage_less_layers)
    fewest += experts.num_dense_layers if experts else 0
    period = math.lcm(layout.recompute_every, experts.sparse_layer_interval if experts else 1)
    first = next_alike(fewest, layers_per_stage(layout, spec.model.num_layers), period)
    return first, first + period * -(-2 // period)


def _few_micro_batches(spec: TrialSpec) -> tuple[int, int]:
    """Enough for every pipeline rank to have as many in flight as it ever has, beside accumulated gradients."""
    num_ranks = spec.layout.pipeline_parallel_degree
    if spec.layout.pipeline_schedule in ONE_STAGE_SCHEDULES:
        return num_ranks + 1, num_ranks + 2
    if spec.layout.pipeline_schedule == PipelineSchedule.ADAPTIVE:  # and what runs further ahead on every link
        num_ranks *= 1 + spec.layout.extra_slack
    return 2 * num_ranks, 3 * num_ranks  # interleaved schedules take them in rounds


def _two_or_all(few: tuple[int, int], whole: int) -> tuple[int, ...]:
    return few if max(few) < whole else (whole,)


def _weights(sizes: Sequence[int], whole: int) -> tuple[float, ...]:
    """Weights of a straight line's values at one or two points, in its value at another."""
    if len(sizes) == 1:
        return (1.0,)
    less, more = sizes
    slope = (whole - less) / (more - less)
    return 1 - slope, slope


def _smaller(spec: TrialSpec, layers: int, micro_batches: int) -> TrialSpec:
    layout = spec.layout
    batch = micro_batches * layout.micro_batch_size * layout.data_parallel_degree
    return replace(
        spec,
        model=with_layers_per_stage(spec.model, layout, layers),
        workload=replace(spec.workload, global_batch_size=batch),
    )
