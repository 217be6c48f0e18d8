"""Which layers a pipeline rank holds, how many micro-batches it keeps, and how long it idles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.legality import Job

__all__ = ["RankLoad", "bubble_s", "critical_ranks", "fullest_ranks", "num_micro_batches", "num_transfers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What one pipeline rank of each layout holds.

    Layers are dealt in order; where they do not divide, the first stages get one more.

    Attributes:
        rank: Its place in the pipeline, from 0.
        num_dense_layers: Layers with an ordinary feed-forward block, over all its stages.
        num_sparse_layers: Layers with experts, over all its stages.
        has_input: It looks tokens up.
        has_output: It computes logits and loss.
        micro_batches_in_flight: Most micro-batches whose activations it keeps at once; where it holds several
            stages, counted in micro-batches of all of them, so the number may be a fraction.
    """

    rank: Integers
    num_dense_layers: Integers
    num_sparse_layers: Integers
    has_input: Booleans
    has_output: Booleans
    micro_batches_in_flight: Floats

    @property
    def num_layers(self) -> Integers:
        """Layers over all its stages."""
        return self.num_dense_layers + self.num_sparse_layers


def num_micro_batches(x: LayoutColumns, job: Job) -> Integers:
    """Micro-batches per replica and step; as ``Workload.num_micro_batches``, for columns."""
    return job.workload.global_batch_size // (x.data_parallel_degree * x.micro_batch_size)


def critical_ranks(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """The pipeline ranks among which the slowest and the fullest are found.

    The first (input table, most micro-batches in flight, one layer more), the last (output projection, logits) and,
    in a model whose leading layers are dense, the first rank that starts behind them. A rank between holds no
    more of anything than one of these, receive buffers apart (``fullest_ranks``).
    """
    last = x.pipeline_parallel_degree - 1
    ranks = [np.zeros_like(last), last]
    num_leading = job.model.num_layers - job.model.num_sparse_layers
    if 0 < num_leading < job.model.num_layers:
        ranks.append(np.minimum(-(-num_leading // np.maximum(1, job.model.num_layers // x.num_stages)), last))
    return tuple(_load(x, job, rank) for rank in ranks)


def fullest_ranks(x: LayoutColumns, job: Job) -> tuple[RankLoad, ...]:
    """The critical ranks, and the second: of those that receive from both sides, it keeps the most micro-batches."""
    second = np.minimum(1, x.pipeline_parallel_degree - 1)
    return (*critical_ranks(x, job), _load(x, job, second))


def _load(x: LayoutColumns, job: Job, rank: Integers) -> RankLoad:
    dense, sparse = _layers(x, job, rank)
    folded = x.pipeline_schedule == PipelineSchedule.ZBV  # a V: the first rank also holds the last stage
    return RankLoad(
        rank=rank,
        num_dense_layers=dense,
        num_sparse_layers=sparse,
        has_input=rank == 0,
        has_output=np.where(folded, rank == 0, rank == x.pipeline_parallel_degree - 1),
        micro_batches_in_flight=_in_flight(x, job, rank),
    )


def _layers(x: LayoutColumns, job: Job, rank: Integers) -> tuple[Integers, Integers]:
    """Dense and sparse layers of a rank, summed over its stages."""
    num_leading = job.model.num_layers - job.model.num_sparse_layers
    per_stage, rest = job.model.num_layers // x.num_stages, job.model.num_layers % x.num_stages
    dense, sparse = np.zeros_like(rank), np.zeros_like(rank)
    for chunk in range(int(x.virtual_stages_per_rank.max(initial=1))):
        looped = rank + chunk * x.pipeline_parallel_degree
        folded = (chunk > 0) & (x.pipeline_schedule == PipelineSchedule.ZBV)
        stage = np.where(folded, x.num_stages - 1 - rank, looped)
        start = stage * per_stage + np.minimum(stage, rest)
        size = (per_stage + (stage < rest)) * (chunk < x.virtual_stages_per_rank)
        leading = np.clip(num_leading - start, 0, size)
        dense, sparse = dense + leading, sparse + size - leading
    return dense, sparse


def _in_flight(x: LayoutColumns, job: Job, rank: Integers) -> Floats:
    """Most micro-batches whose activations a rank keeps.

    GPipe keeps all m. 1F1B runs ``p - rank`` forwards before its first backward (arXiv 2104.04473, section 2.2), and so
    does ZB-H1 (arXiv 2401.10241, section 2.3). Interleaved 1F1B warms up with ``2 (p - rank - 1) + (v - 1) p`` chunks
    and keeps one more: ``p v + p - 1`` on the first rank, the factor ``1 + (p - 1) / (p v)`` of arXiv 2205.05198,
    section 4.2.3. The V schedule keeps ``2 p`` half-size chunks on every rank (arXiv 2405.15362, ZB-V row of table 1).
    """
    p, v, m = x.pipeline_parallel_degree, x.virtual_stages_per_rank, num_micro_batches(x, job)
    schedule = x.pipeline_schedule
    chunks = np.select(
        [
            schedule == PipelineSchedule.GPIPE,
            schedule == PipelineSchedule.INTERLEAVED_1F1B,
            schedule == PipelineSchedule.ZBV,
        ],
        [m, 2 * (p - rank - 1) + (v - 1) * p + 1, 2 * p],
        default=p - rank,
    )
    in_flight: Floats = np.minimum(chunks, m * v) / v
    return in_flight


def bubble_s(x: LayoutColumns, others_s: Floats, others_weight_s: Floats) -> Floats:
    """Seconds in which the slowest pipeline rank waits for the others.

    A micro-batch fills and drains the pipeline once, through the passes of all other ranks: ``(p - 1)(F + B + W)`` for
    equal ranks (GPipe and 1F1B, arXiv 2104.04473, section 2.2), a v-th of it when interleaved (section 2.3). Deferred
    weight gradients fill part of it: ``(p - 1)(F + B - W)`` for ZB-H1. The V schedule is given the form of ZB-H2,
    ``(p - 1)(F + B - 2 W)``, never below 0: both idle for nothing when F, B and W are equal (arXiv 2401.10241,
    section 2.3 and table 1; arXiv 2405.15362).

    Args:
        x: Layouts.
        others_s: Forward and backward of one micro-batch on all ranks but the slowest, summed.
        others_weight_s: The part of ``others_s`` that computes weight gradients.
    """
    schedule = x.pipeline_schedule
    filled = 2.0 * (schedule == PipelineSchedule.ZERO_BUBBLE) + 3.0 * (schedule == PipelineSchedule.ZBV)
    split = np.where(schedule == PipelineSchedule.INTERLEAVED_1F1B, x.virtual_stages_per_rank, 1)
    idle_s: Floats = np.maximum(0.0, others_s - filled * others_weight_s) / split
    return idle_s


def num_transfers(x: LayoutColumns, job: Job) -> Integers:
    """How many sends between stages lie on the critical path of a step.

    Filling and draining costs ``2 (p - 1)``. In 1F1B the forward of each micro-batch then waits for the backward of the
    one before, so each chunk pays one send more: m for a delay on the last link (arXiv 2504.19232: 1F1B has no slack);
    in GPipe and with deferred weight gradients the schedule has the slack to hide it.
    """
    slack = (
        (x.pipeline_schedule == PipelineSchedule.GPIPE)
        | (x.pipeline_schedule == PipelineSchedule.ZERO_BUBBLE)
        | (x.pipeline_schedule == PipelineSchedule.ZBV)
    )
    steady = np.where(slack, 0, num_micro_batches(x, job) * x.virtual_stages_per_rank)
    return (2 * (x.pipeline_parallel_degree - 1) + steady) * (x.pipeline_parallel_degree > 1)
