"""The parts of a model, the pipeline stages that hold them, and the work of a pipeline rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import add
from typing import NamedTuple, TypeAlias

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import V_SCHEDULES
from autotuner.costmodel.shared.table import where


class PartKind(Enum):
    """The kinds of parts of a model that pipeline stages hold. The cost model adds the times of parts in this order."""

    DENSE = "layer with an ordinary feed-forward block"
    INPUT = "token table"
    OUTPUT = "output projection and loss"
    SPARSE = "layer with experts"

    @staticmethod
    def of(model: TransformerSpec) -> tuple[PartKind, ...]:
        """Return the kinds of parts that a model has. ``DENSE`` is always included, even without dense layers."""
        return tuple(kind for kind in PartKind if kind is not PartKind.SPARSE or model.num_sparse_layers)

    @property
    def is_layer(self) -> bool:
        """True for a kind of layer, with or without experts; False for the input and output of the model.

        Only layers can be recomputed or offloaded, and are assigned to stages by their number.
        """
        return self in LAYERS


LAYERS = (PartKind.DENSE, PartKind.SPARSE)

Counts: TypeAlias = Mapping[PartKind, Integers]
"""Number of parts of each kind in each layout."""


def is_folded(x: LayoutColumns) -> Booleans:
    """Return a mask over the layouts: True where stages form a V, so that the first rank also holds the last stage."""
    folded: Booleans = is_one_of(x.pipeline_schedule, V_SCHEDULES)
    return folded


def first_layer(x: LayoutColumns, job: Job, stage: Integers) -> Integers:
    """Return the number of a stage's first layer, as ``core.stages.stage_layers`` assigns layers to stages.

    A software stack may balance stages. It then counts the output projection as an equivalent number of layers, unless
    the layout itself states how many fewer layers the first and last stages have.

    Args:
        x: Layouts, one per row.
        job: The job.
        stage: Number of the stage in each layout, from 0. If it is the number of stages, the result is the number of
            layers of the model.
    """
    first, last = x.first_stage_less_layers, x.last_stage_less_layers
    given_away = first + last
    per_stage, rest = np.divmod(job.model.num_layers + given_away, x.num_stages)
    even: Integers = stage * per_stage + np.minimum(stage, rest) - first * (stage > 0) - last * (stage == x.num_stages)
    if not job.stack.balances_stages:
        return even
    return np.where(given_away > 0, even, _balanced(x, job, stage))


def _balanced(x: LayoutColumns, job: Job, stage: Integers) -> Integers:
    num_layers = job.model.num_layers
    layer_parameters = job.model.num_active_layer_matrix_parameters / num_layers
    num_with_embeddings = num_layers + job.model.embedding_parameters / layer_parameters
    return np.minimum(np.ceil(num_with_embeddings * stage / x.num_stages).astype(np.int64), num_layers)


def held_layers(x: LayoutColumns, job: Job, rank: Integers) -> Counts:
    """Return the number of dense and sparse layers that one pipeline rank of each layout holds in all its stages."""
    num_sparse = job.model.num_sparse_layers
    if 0 < num_sparse < job.model.num_layers:
        return _summed(_stage(x, job, stage) for stage in _stages(x, rank))
    held, nothing = _held(x, job, rank), np.zeros_like(rank)
    return _layers(nothing, held) if num_sparse else _layers(held, nothing)


def _layers(dense: Integers, sparse: Integers) -> Counts:
    return {PartKind.DENSE: dense, PartKind.SPARSE: sparse}


def layers_not_recomputed(x: LayoutColumns, job: Job, rank: Integers) -> Counts:
    """Return the number of layers of a pipeline rank that are not recomputed in a layout with recomputation.

    A layout with ``recompute_every = n`` recomputes every n-th layer of a stage. This function counts the other layers.
    """
    return _summed(_not_recomputed(x, job, stage) for stage in _stages(x, rank))


def model_layers_not_recomputed(x: LayoutColumns, job: Job) -> Counts:
    """Return the number of layers of the whole model that are not recomputed in a layout with recomputation."""
    if not (x.recompute_every > 1).any():
        return dict.fromkeys(LAYERS, np.zeros(len(x), dtype=np.int64))
    return _summed(_not_recomputed(x, job, np.full(len(x), s)) for s in range(int(x.num_stages.max(initial=1))))


def _held(x: LayoutColumns, job: Job, rank: Integers) -> Integers:
    """Return the number of layers of a rank, of any kind.

    If a rank has several stages, all stages except the first and last are equal.
    """
    alone = first_layer(x, job, rank + 1) - first_layer(x, job, rank)
    given_away = x.first_stage_less_layers + x.last_stage_less_layers
    per_stage = (job.model.num_layers + given_away) // x.num_stages
    has_last = rank == np.where(is_folded(x), 0, x.pipeline_parallel_degree - 1)
    less = x.first_stage_less_layers * (rank == 0) + x.last_stage_less_layers * has_last
    return np.where(x.virtual_stages_per_rank == 1, alone, per_stage * x.virtual_stages_per_rank - less)


def _stages(x: LayoutColumns, rank: Integers) -> Iterator[Integers]:
    """Yield the stages of a rank; numbers beyond the last stage if a layout has fewer."""
    for chunk in range(int(x.virtual_stages_per_rank.max(initial=1))):
        back = is_folded(x) & (chunk > 0)
        yield np.where(back, x.num_stages - 1 - rank, rank + chunk * x.pipeline_parallel_degree)


def _stage(x: LayoutColumns, job: Job, stage: Integers) -> Counts:
    """Return the number of layers of a stage by kind; zero if the layout has no such stage."""
    start = first_layer(x, job, stage)
    size = (first_layer(x, job, stage + 1) - start) * (stage < x.num_stages)
    sparse = _sparse_before(start + size, job) - _sparse_before(start, job)
    return _layers(size - sparse, sparse)


def _sparse_before(layer: Integers, job: Job) -> Integers:
    """Return the number of sparse layers before a layer (``MixtureOfExperts.num_sparse``)."""
    experts = job.model.experts
    if experts is None:
        return np.zeros_like(layer)
    interval = experts.sparse_layer_interval
    before: Integers = layer // interval - np.minimum(layer, experts.num_dense_layers) // interval
    return before


def _not_recomputed(x: LayoutColumns, job: Job, stage: Integers) -> Counts:
    """Return the number of layers of a stage that do not recompute: all but every n-th layer, from the first."""
    held = _stage(x, job, stage)
    recomputed = -(-(held[PartKind.DENSE] + held[PartKind.SPARSE]) // x.recompute_every)
    sparse = _sparse_recomputed(x, job, first_layer(x, job, stage), recomputed)
    return _layers(held[PartKind.DENSE] - (recomputed - sparse), held[PartKind.SPARSE] - sparse)


def _sparse_recomputed(x: LayoutColumns, job: Job, start: Integers, recomputed: Integers) -> Integers:
    """Return the number of sparse layers among those that recompute, which are every n-th layer from ``start`` on."""
    experts, every = job.model.experts, x.recompute_every
    sparse = np.zeros_like(recomputed)
    if experts is None:
        return sparse
    interval, dense = experts.sparse_layer_interval, np.maximum(0, -((start - experts.num_dense_layers) // every))
    for place in range(interval):  # layers after the leading dense ones repeat with this period
        is_sparse = (start + (dense + place) * every + 1) % interval == 0
        sparse = sparse + is_sparse * np.maximum(0, -((dense + place - recomputed) // interval))
    return sparse


def _summed(stages: Iterable[Counts]) -> Counts:
    found = list(stages)
    return {kind: reduce(add, (stage[kind] for stage in found)) for kind in LAYERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """The number of layers and other model parts that one pipeline rank holds, with one row per layout.

    It says how many layers the rank holds; ``stage_layers`` says which.
    """

    rank: Integers
    """Number of the pipeline rank, from 0."""
    counts: Counts
    """Number of parts of every kind over all stages of the rank."""
    not_recomputed: Counts
    """Number of layers that do not recompute although the layout recomputes."""
    micro_batches_in_flight: Floats
    """Most micro-batches whose activations the rank keeps at once. With several stages per rank, each stage counts as a
    part of a micro-batch, so that the number may not be whole."""

    @property
    def num_layers(self) -> Integers:
        """The number of layers that the rank holds, over all its stages."""
        return self.counts[PartKind.DENSE] + self.counts[PartKind.SPARSE]

    @property
    def has_input(self) -> Booleans:
        """A mask over the layouts: True where the rank holds the token table (the input embedding)."""
        return self.counts[PartKind.INPUT] > 0

    @property
    def has_output(self) -> Booleans:
        """A mask over the layouts: True where the rank computes the logits and the loss."""
        return self.counts[PartKind.OUTPUT] > 0


def num_micro_batches(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of micro-batches per replica and step of every layout.

    For one layout ``Workload.num_micro_batches`` gives the same number.
    """
    return job.workload.global_batch_size // (x.data_parallel_degree * x.micro_batch_size)


class CandidateRanks(NamedTuple):
    """The few pipeline ranks of each layout that can be the slowest, and those that can have the highest memory peak.

    The cost model computes only these ranks, because one of them decides the layout's step time or peak memory.
    """

    slowest: tuple[RankLoad, ...]
    """Ranks that can be the slowest: the first (it has the embedding, and may have one layer more), the last (output
    projection), the first rank that starts after leading dense layers, and the second if the ends have fewer layers.
    Ranks in between have no more of anything than one of these, except receive buffers."""
    fullest: tuple[RankLoad, ...]
    """Ranks that can have most memory: those of ``slowest``, and the second rank of any pipeline, which keeps the most
    micro-batches of all ranks that receive from both sides."""


def candidate_ranks(x: LayoutColumns, job: Job) -> CandidateRanks:
    """Return the pipeline ranks of each layout that can decide its step time or its peak memory."""
    last = x.pipeline_parallel_degree - 1
    ranks = [np.zeros_like(last), last]
    num_leading = job.model.num_layers - job.model.num_sparse_layers
    if 0 < num_leading < job.model.num_layers:
        ranks.append(np.minimum(_first_behind(x, job, num_leading), last))
    loads, second = tuple(load_of_rank(x, job, rank) for rank in ranks), load_of_rank(x, job, np.minimum(1, last))
    has_smaller_ends = x.first_stage_less_layers + x.last_stage_less_layers > 0
    if not has_smaller_ends.any():
        return CandidateRanks(slowest=loads, fullest=(*loads, second))
    return CandidateRanks(slowest=(*loads, where(has_smaller_ends, second, loads[0])), fullest=(*loads, second))


def _first_behind(x: LayoutColumns, job: Job, num_leading: int) -> Integers:
    """Return the first stage without any of the model's leading layers."""
    per_stage = np.maximum(1, job.model.num_layers // x.num_stages)
    soonest, latest = -(-num_leading // (per_stage + 1)), -(-num_leading // per_stage)
    return np.where(first_layer(x, job, soonest) >= num_leading, soonest, latest)


def slowest_candidates(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """Return the few pipeline ranks of each layout that can be its slowest one."""
    return candidate_ranks(x, job).slowest


def fullest_candidates(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """Return the few pipeline ranks of each layout that can have the highest peak memory."""
    return candidate_ranks(x, job).fullest


def stage_load(x: LayoutColumns, job: Job, stage: Integers, rank: Integers) -> RankLoad:
    """Return the layers and other model parts of one stage of each layout. Other stages of its rank are not counted.

    Args:
        x: Layouts, one per row.
        job: The job.
        stage: Number of the stage in each layout, from 0.
        rank: Pipeline rank that holds this stage in each layout, from 0.
    """
    not_recomputed = {
        kind: np.where(x.recompute_every > 1, count, 0) for kind, count in _not_recomputed(x, job, stage).items()
    }
    return RankLoad(
        rank=rank,
        counts=_with_ends(_stage(x, job, stage), stage == 0, stage == x.num_stages - 1),
        not_recomputed=not_recomputed,
        micro_batches_in_flight=_in_flight(x, job, rank) / x.virtual_stages_per_rank,
    )


def load_of_rank(x: LayoutColumns, job: Job, rank: Integers) -> RankLoad:
    """Return the layers and other model parts that one pipeline rank of each layout holds.

    Args:
        x: Layouts, one per row.
        job: The job.
        rank: Number of the pipeline rank in each layout, from 0.
    """
    left_out: Counts = dict.fromkeys(LAYERS, np.zeros_like(rank))
    if (x.recompute_every > 1).any():
        left_out = layers_not_recomputed(x, job, rank)
    has_output = np.where(is_folded(x), rank == 0, rank == x.pipeline_parallel_degree - 1)
    return RankLoad(
        rank=rank,
        counts=_with_ends(held_layers(x, job, rank), rank == 0, has_output),
        not_recomputed=left_out,
        micro_batches_in_flight=_in_flight(x, job, rank),
    )


def _with_ends(layers: Counts, has_input: Booleans, has_output: Booleans) -> Counts:
    """Return the number of parts of every kind: the layers, and the ends of the model if the rank has them."""
    ends = {PartKind.INPUT: has_input.astype(np.int64), PartKind.OUTPUT: has_output.astype(np.int64)}
    every = {**layers, **ends}
    return {kind: every[kind] for kind in PartKind}


def _in_flight(x: LayoutColumns, job: Job, rank: Integers) -> Floats:
    """Return the most micro-batches whose activations a rank keeps.

    GPipe keeps all m micro-batches. 1F1B runs ``p - rank`` forwards before its first backward (arXiv 2104.04473,
    section 2.2). So does ZB-H1, which then defers weight gradients until every rank keeps p (arXiv 2401.10241, section
    2.3); with v stages per rank they are p v chunks. The V of DualPipe keeps 2 p + 1 half-size chunks
    (deepseek-ai/DualPipe's README: PP + 1, of PP stages). Interleaved 1F1B warms up with ``2 (p - rank - 1) + (v - 1)
    p`` chunks and keeps one more: ``p v + p - 1`` on the first rank, the factor ``1 + (p - 1) / (p v)`` of arXiv
    2205.05198, section 4.2.3. The V schedule keeps ``2 p`` half-size chunks on every rank (arXiv 2405.15362, ZB-V row
    of table 1). In the adaptive schedule, a rank warms up with two more than the next rank, and weight gradients are
    deferred until every rank keeps as many as the first.
    """
    p, v, m = x.pipeline_parallel_degree, x.virtual_stages_per_rank, num_micro_batches(x, job)
    schedule = x.pipeline_schedule
    chunks = np.select(
        [
            schedule == PipelineSchedule.GPIPE,
            schedule == PipelineSchedule.INTERLEAVED_1F1B,
            schedule == PipelineSchedule.ZERO_BUBBLE,
            schedule == PipelineSchedule.ZBV,
            schedule == PipelineSchedule.DUALPIPEV,
            schedule == PipelineSchedule.ADAPTIVE,
        ],
        [m, 2 * (p - rank - 1) + (v - 1) * p + 1, p * v, 2 * p, 2 * p + 1, 2 * p - 1 + x.extra_slack * (p - 1)],
        default=p - rank,
    )
    in_flight: Floats = np.minimum(chunks, m * v) / v
    return in_flight
