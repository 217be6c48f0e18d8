"""Which layers a pipeline rank holds, how many micro-batches it keeps, and how long it idles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.legality import Job

__all__ = ["RankLoad", "critical_ranks", "fullest_ranks", "num_micro_batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What one pipeline rank of each layout holds.

    Layers are dealt in order, evenly or, where the stack balances stages, by cost; where they do not divide, the first
    stages get one more.

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
    num_sparse = job.model.num_sparse_layers
    num_leading = job.model.num_layers - num_sparse
    if num_sparse and num_leading:
        return _layers_behind(x, job, rank, num_leading)
    held, nothing = _layers_held(x, job, rank), np.zeros_like(rank)
    return (nothing, held) if num_sparse else (held, nothing)


def _layers_held(x: LayoutColumns, job: Job, rank: Integers) -> Integers:
    """Layers of a rank of any kind; more than one stage per rank have equally many (``equal-virtual-stages``)."""
    alone = _first_layer(x, job, rank + 1) - _first_layer(x, job, rank)
    several = job.model.num_layers // x.num_stages * x.virtual_stages_per_rank
    return np.where(x.virtual_stages_per_rank == 1, alone, several)


def _layers_behind(x: LayoutColumns, job: Job, rank: Integers, num_leading: int) -> tuple[Integers, Integers]:
    """Dense and sparse layers of a rank where the first ``num_leading`` layers of the model are dense."""
    held, dense = np.zeros_like(rank), np.zeros_like(rank)
    for chunk in range(int(x.virtual_stages_per_rank.max(initial=1))):
        folded = (chunk > 0) & (x.pipeline_schedule == PipelineSchedule.ZBV)
        stage = np.where(folded, x.num_stages - 1 - rank, rank + chunk * x.pipeline_parallel_degree)
        start = _first_layer(x, job, stage)
        size = (_first_layer(x, job, stage + 1) - start) * (chunk < x.virtual_stages_per_rank)
        held, dense = held + size, dense + np.clip(num_leading - start, 0, size)
    return dense, held - dense


def _first_layer(x: LayoutColumns, job: Job, stage: Integers) -> Integers:
    """Where a stage begins: evenly dealt, or with the output projection counted as the layers that it is worth."""
    num_layers = job.model.num_layers
    if not job.stack.balances_stages:
        per_stage, rest = np.divmod(num_layers, x.num_stages)
        return stage * per_stage + np.minimum(stage, rest)
    layer_parameters = job.model.num_active_layer_matrix_parameters / num_layers
    worth = num_layers + job.model.embedding_parameters / layer_parameters
    return np.minimum(np.ceil(worth * stage / x.num_stages).astype(np.int64), num_layers)


def _in_flight(x: LayoutColumns, job: Job, rank: Integers) -> Floats:
    """Most micro-batches whose activations a rank keeps.

    GPipe keeps all m. 1F1B runs ``p - rank`` forwards before its first backward (arXiv 2104.04473, section 2.2). So
    does ZB-H1, which then defers weight gradients until every rank keeps p (arXiv 2401.10241, section 2.3).
    Interleaved 1F1B warms up with ``2 (p - rank - 1) + (v - 1) p`` chunks and keeps one more: ``p v + p - 1`` on the
    first rank, the factor ``1 + (p - 1) / (p v)`` of arXiv 2205.05198, section 4.2.3. The V schedule keeps ``2 p``
    half-size chunks on every rank (arXiv 2405.15362, ZB-V row of table 1).
    """
    p, v, m = x.pipeline_parallel_degree, x.virtual_stages_per_rank, num_micro_batches(x, job)
    schedule = x.pipeline_schedule
    chunks = np.select(
        [
            schedule == PipelineSchedule.GPIPE,
            schedule == PipelineSchedule.INTERLEAVED_1F1B,
            schedule == PipelineSchedule.ZERO_BUBBLE,
            schedule == PipelineSchedule.ZBV,
        ],
        [m, 2 * (p - rank - 1) + (v - 1) * p + 1, p, 2 * p],
        default=p - rank,
    )
    in_flight: Floats = np.minimum(chunks, m * v) / v
    return in_flight
