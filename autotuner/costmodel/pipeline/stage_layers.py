"""Which layers a pipeline rank holds: ``core.stages`` for columns, and for stacks that balance stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from autotuner.core.columns import Booleans, Integers, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.stages import V_SCHEDULES


class LayerCounts(NamedTuple):
    """Layers with an ordinary feed-forward block, and layers with experts."""

    dense: Integers
    sparse: Integers


def is_folded(x: LayoutColumns) -> Booleans:
    """Whether the second round of stages runs through the ranks backwards: the first rank also holds the last stage."""
    folded: Booleans = is_one_of(x.pipeline_schedule, V_SCHEDULES)
    return folded


def first_layer(x: LayoutColumns, job: Job, stage: Integers) -> Integers:
    """Where a stage begins, as ``core.stages.stage_layers`` deals layers.

    A stack that balances stages counts the output projection as the layers that it is worth, unless the layout itself
    says how many fewer the ends have.
    """
    first, last = x.first_stage_less_layers, x.last_stage_less_layers
    given_away = first + last
    per_stage, rest = np.divmod(job.model.num_layers + given_away, x.num_stages)
    dealt: Integers = stage * per_stage + np.minimum(stage, rest) - first * (stage > 0) - last * (stage == x.num_stages)
    if not job.stack.balances_stages:
        return dealt
    return np.where(given_away > 0, dealt, _balanced(x, job, stage))


def _balanced(x: LayoutColumns, job: Job, stage: Integers) -> Integers:
    num_layers = job.model.num_layers
    layer_parameters = job.model.num_active_layer_matrix_parameters / num_layers
    worth = num_layers + job.model.embedding_parameters / layer_parameters
    return np.minimum(np.ceil(worth * stage / x.num_stages).astype(np.int64), num_layers)


def held_layers(x: LayoutColumns, job: Job, rank: Integers) -> LayerCounts:
    """Layers of a pipeline rank, summed over its stages."""
    num_sparse = job.model.num_sparse_layers
    if 0 < num_sparse < job.model.num_layers:
        return _summed(_stage(x, job, stage) for stage in _stages(x, rank))
    held, nothing = _held(x, job, rank), np.zeros_like(rank)
    return LayerCounts(nothing, held) if num_sparse else LayerCounts(held, nothing)


def layers_not_recomputed(x: LayoutColumns, job: Job, rank: Integers) -> LayerCounts:
    """Layers of a rank that do not recompute although the layout does: all of a stage but every n-th from its first."""
    return _summed(_not_recomputed(x, job, stage) for stage in _stages(x, rank))


def model_layers_not_recomputed(x: LayoutColumns, job: Job) -> LayerCounts:
    """Layers of the whole model that do not recompute although the layout does."""
    return _summed(_not_recomputed(x, job, np.full(len(x), s)) for s in range(int(x.num_stages.max(initial=1))))


def stage_counts(x: LayoutColumns, job: Job, stage: Integers) -> tuple[LayerCounts, LayerCounts]:
    """Layers of one stage of each layout, and those of them that do not recompute although the layout does."""
    return _stage(x, job, stage), _not_recomputed(x, job, stage)


def _held(x: LayoutColumns, job: Job, rank: Integers) -> Integers:
    """Layers of a rank of any kind; of several stages per rank all but the ends are equal (equal-virtual-stages)."""
    alone = first_layer(x, job, rank + 1) - first_layer(x, job, rank)
    given_away = x.first_stage_less_layers + x.last_stage_less_layers
    per_stage = (job.model.num_layers + given_away) // x.num_stages
    has_last = rank == np.where(is_folded(x), 0, x.pipeline_parallel_degree - 1)
    less = x.first_stage_less_layers * (rank == 0) + x.last_stage_less_layers * has_last
    return np.where(x.virtual_stages_per_rank == 1, alone, per_stage * x.virtual_stages_per_rank - less)


def _stages(x: LayoutColumns, rank: Integers) -> Iterator[Integers]:
    """The stages of a rank one after the other; beyond the last one where a layout has fewer."""
    for chunk in range(int(x.virtual_stages_per_rank.max(initial=1))):
        back = is_folded(x) & (chunk > 0)
        yield np.where(back, x.num_stages - 1 - rank, rank + chunk * x.pipeline_parallel_degree)


def _stage(x: LayoutColumns, job: Job, stage: Integers) -> LayerCounts:
    """Layers of a stage, none where the layout has no such stage."""
    start = first_layer(x, job, stage)
    size = (first_layer(x, job, stage + 1) - start) * (stage < x.num_stages)
    sparse = _sparse_before(start + size, job) - _sparse_before(start, job)
    return LayerCounts(size - sparse, sparse)


def _sparse_before(layer: Integers, job: Job) -> Integers:
    """How many of the first layers of the model have experts (``MixtureOfExperts.num_sparse``)."""
    experts = job.model.experts
    if experts is None:
        return np.zeros_like(layer)
    interval = experts.sparse_layer_interval
    before: Integers = layer // interval - np.minimum(layer, experts.num_dense_layers) // interval
    return before


def _not_recomputed(x: LayoutColumns, job: Job, stage: Integers) -> LayerCounts:
    """Of a stage all but every n-th layer from its first."""
    held = _stage(x, job, stage)
    recomputed = -(-(held.dense + held.sparse) // x.recompute_every)
    sparse = _sparse_recomputed(x, job, first_layer(x, job, stage), recomputed)
    return LayerCounts(held.dense - (recomputed - sparse), held.sparse - sparse)


def _sparse_recomputed(x: LayoutColumns, job: Job, start: Integers, recomputed: Integers) -> Integers:
    """How many of so many layers, every n-th from a first one, have experts."""
    experts, every = job.model.experts, x.recompute_every
    sparse = np.zeros_like(recomputed)
    if experts is None:
        return sparse
    interval, dense = experts.sparse_layer_interval, np.maximum(0, -((start - experts.num_dense_layers) // every))
    for place in range(interval):  # of those that are none of the leading dense ones: they repeat after as many
        is_sparse = (start + (dense + place) * every + 1) % interval == 0
        sparse = sparse + is_sparse * np.maximum(0, -((dense + place - recomputed) // interval))
    return sparse


def _summed(stages: Iterator[LayerCounts]) -> LayerCounts:
    dense, sparse = zip(*stages, strict=True)
    return LayerCounts(sum(dense), sum(sparse))
