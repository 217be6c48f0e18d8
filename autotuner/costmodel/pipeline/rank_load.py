"""Which layers a pipeline rank holds, how many micro-batches it keeps, and how long it idles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.pipeline.stage_layers import (
    LayerCounts,
    first_layer,
    held_layers,
    is_folded,
    layers_not_recomputed,
    stage_counts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What one pipeline rank of each layout holds.

    Which layers these are, ``stage_layers`` says.

    Attributes:
        rank: Its number in the pipeline, from 0.
        num_dense_layers: Layers with an ordinary feed-forward block, over all its stages.
        num_sparse_layers: Layers with experts, over all its stages.
        num_dense_not_recomputed: Dense layers that do not recompute although the layout recomputes.
        num_sparse_not_recomputed: Sparse layers that do not.
        has_input: It looks tokens up.
        has_output: It computes logits and loss.
        micro_batches_in_flight: Most micro-batches whose activations it keeps at once; where it holds several
            stages, counted in micro-batches of all of them, so the number may be a fraction.
    """

    rank: Integers
    num_dense_layers: Integers
    num_sparse_layers: Integers
    num_dense_not_recomputed: Integers
    num_sparse_not_recomputed: Integers
    has_input: Booleans
    has_output: Booleans
    micro_batches_in_flight: Floats

    @property
    def num_layers(self) -> Integers:
        """Layers over all its stages."""
        return self.num_dense_layers + self.num_sparse_layers

    def where(self, rows: Booleans, other: RankLoad) -> RankLoad:
        """This rank in some layouts, another in the rest."""
        return RankLoad(
            **{f.name: np.where(rows, getattr(self, f.name), getattr(other, f.name)) for f in fields(RankLoad)}
        )


def num_micro_batches(x: LayoutColumns, job: Job) -> Integers:
    """Micro-batches per replica and step; as ``Workload.num_micro_batches``, for columns."""
    return job.workload.global_batch_size // (x.data_parallel_degree * x.micro_batch_size)


class LookedAt(NamedTuple):
    """The few pipeline ranks of each layout that decide its step time and its memory.

    Attributes:
        critical: Ranks among which the slowest is found: the first (input table, one layer more), the last (output
            projection), in a model whose leading layers are dense the first rank that starts behind them, and the
            second where the ends have fewer layers. A rank between has no more of anything than one of these, receive
            buffers apart.
        fullest: Ranks among which the fullest is found: these, and the second of any pipeline: of the ranks that
            receive from both sides, it keeps the most micro-batches.
    """

    critical: tuple[RankLoad, ...]
    fullest: tuple[RankLoad, ...]


def ranks_looked_at(x: LayoutColumns, job: Job) -> LookedAt:
    """The ranks that decide step time and memory of each layout."""
    last = x.pipeline_parallel_degree - 1
    ranks = [np.zeros_like(last), last]
    num_leading = job.model.num_layers - job.model.num_sparse_layers
    if 0 < num_leading < job.model.num_layers:
        ranks.append(np.minimum(_first_behind(x, job, num_leading), last))
    loads, second = tuple(load_of_rank(x, job, rank) for rank in ranks), load_of_rank(x, job, np.minimum(1, last))
    has_smaller_ends = x.first_stage_less_layers + x.last_stage_less_layers > 0
    if not has_smaller_ends.any():
        return LookedAt(critical=loads, fullest=(*loads, second))
    return LookedAt(critical=(*loads, second.where(has_smaller_ends, loads[0])), fullest=(*loads, second))


def _first_behind(x: LayoutColumns, job: Job, num_leading: int) -> Integers:
    """The first stage without any of the model's leading layers, of which stages hold ``per_stage`` or one more."""
    per_stage = np.maximum(1, job.model.num_layers // x.num_stages)
    soonest, latest = -(-num_leading // (per_stage + 1)), -(-num_leading // per_stage)
    return np.where(first_layer(x, job, soonest) >= num_leading, soonest, latest)


def critical_ranks(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """The pipeline ranks among which the slowest is found."""
    return ranks_looked_at(x, job).critical


def fullest_ranks(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """The pipeline ranks among which the fullest is found."""
    return ranks_looked_at(x, job).fullest


def stage_load(x: LayoutColumns, job: Job, stage: Integers, rank: Integers) -> RankLoad:
    """What one stage of each layout holds, as if its rank held no other."""
    held, not_recomputed = stage_counts(x, job, stage)
    return RankLoad(
        rank=rank,
        num_dense_layers=held.dense,
        num_sparse_layers=held.sparse,
        num_dense_not_recomputed=np.where(x.recompute_every > 1, not_recomputed.dense, 0),
        num_sparse_not_recomputed=np.where(x.recompute_every > 1, not_recomputed.sparse, 0),
        has_input=stage == 0,
        has_output=stage == x.num_stages - 1,
        micro_batches_in_flight=_in_flight(x, job, rank) / x.virtual_stages_per_rank,
    )


def load_of_rank(x: LayoutColumns, job: Job, rank: Integers) -> RankLoad:
    """What one pipeline rank of each layout holds, whichever it is."""
    held, nothing = held_layers(x, job, rank), np.zeros_like(rank)
    not_recomputed = (
        layers_not_recomputed(x, job, rank) if (x.recompute_every > 1).any() else LayerCounts(nothing, nothing)
    )
    return RankLoad(
        rank=rank,
        num_dense_layers=held.dense,
        num_sparse_layers=held.sparse,
        num_dense_not_recomputed=not_recomputed.dense,
        num_sparse_not_recomputed=not_recomputed.sparse,
        has_input=rank == 0,
        has_output=np.where(is_folded(x), rank == 0, rank == x.pipeline_parallel_degree - 1),
        micro_batches_in_flight=_in_flight(x, job, rank),
    )


def _in_flight(x: LayoutColumns, job: Job, rank: Integers) -> Floats:
    """Most micro-batches whose activations a rank keeps.

    GPipe keeps all m. 1F1B runs ``p - rank`` forwards before its first backward (arXiv 2104.04473, section 2.2). So
    does ZB-H1, which then defers weight gradients until every rank keeps p (arXiv 2401.10241, section 2.3); with v
    stages per rank they are p v chunks. The V of DualPipe keeps 2 p + 1 half-size chunks (deepseek-ai/DualPipe's
    README: PP + 1, of PP stages).
    Interleaved 1F1B warms up with ``2 (p - rank - 1) + (v - 1) p`` chunks and keeps one more: ``p v + p - 1`` on the
    first rank, the factor ``1 + (p - 1) / (p v)`` of arXiv 2205.05198, section 4.2.3. The V schedule keeps ``2 p``
    half-size chunks on every rank (arXiv 2405.15362, ZB-V row of table 1). The adaptive schedule warms up with two
    more than the rank behind, and defers weight gradients until every rank keeps what the first does.
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
