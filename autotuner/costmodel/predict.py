"""Step time and memory of layouts, from the closed forms of this package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, LayoutColumns
from autotuner.costmodel.kernels.memory_bound import optimizer_s
from autotuner.costmodel.layer.flops import model_flop_per_step, recomputed_flop_per_step
from autotuner.costmodel.memory.peak import MemoryColumns, fullest_rank, rank_memories
from autotuner.costmodel.memory.sharding import owned_elements
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import STEP_FIELDS, RankStep
from autotuner.costmodel.step.step_time import StepTimeColumns
from autotuner.costmodel.table import mapped, write
from autotuner.costmodel.uncertainty import fit_probability, is_validated, relative_error
from autotuner.domain.choice import Precision
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.prediction import Memory, Prediction, StepTime

__all__ = ["PredictionColumns", "StepTimeColumns", "predict", "predict_chunks", "predict_one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionColumns:
    """``Prediction`` for many layouts; row i belongs to layout i."""

    step_time: StepTimeColumns
    memory: MemoryColumns
    tokens_per_s: Floats
    mfu: Floats
    hfu: Floats
    precision_utilization: Floats
    fits: Booleans
    fit_probability: Floats
    relative_error: Floats
    validated: bool

    def __len__(self) -> int:
        return len(self.mfu)

    def row(self, index: int) -> Prediction:
        """The prediction of one layout."""
        seconds = {f.name: float(getattr(self.step_time, f.name)[index]) for f in fields(StepTime)}
        sizes = {f.name: float(getattr(self.memory, f.name)[index]) for f in fields(Memory) if f.name != "worst_stage"}
        return Prediction(
            step_time=StepTime(**seconds),
            memory=Memory(worst_stage=int(self.memory.worst_stage[index]), **sizes),
            tokens_per_s=float(self.tokens_per_s[index]),
            mfu=float(self.mfu[index]),
            hfu=float(self.hfu[index]),
            precision_utilization=float(self.precision_utilization[index]),
            fits=bool(self.fits[index]),
            fit_probability=float(self.fit_probability[index]),
            relative_error=float(self.relative_error[index]),
            validated=self.validated,
        )


CHUNK = 1 << 16
"""Layouts predicted at once: their columns stay in a core's cache, and a table of millions needs little more memory."""


def predict(x: LayoutColumns, job: Job) -> PredictionColumns:
    """Time and memory of every row; the layouts must be legal for the job. Beyond its result it holds one chunk."""
    whole: PredictionColumns | None = None
    for rows, chunk in predict_chunks(x, job):
        if len(chunk) == len(x):
            return chunk
        whole = whole or mapped(lambda column: np.empty(len(x), column.dtype), chunk)
        write(chunk, whole, rows)
    assert whole is not None, "even an empty table is one chunk"
    return whole


def predict_chunks(x: LayoutColumns, job: Job) -> Iterator[tuple[slice, PredictionColumns]]:
    """Time and memory chunk by chunk, each with its rows of the table, for who needs little of a table of millions."""
    for start in range(0, max(1, len(x)), CHUNK):
        rows = slice(start, start + CHUNK)
        yield rows, _predict(x.take(rows), job)


def predict_one(layout: Layout, job: Job) -> Prediction:
    """Time and memory of one legal layout."""
    return predict(LayoutColumns.from_layouts([layout]), job).row(0)


def _predict(x: LayoutColumns, job: Job) -> PredictionColumns:
    few, which = x.distinct(*STEP_FIELDS)
    step_time = _step_time(x, job, mapped(lambda column: column[which], RankStep.of(few, job)))
    sizes = fullest_rank(x, job, [mapped(lambda column: column[which], rank) for rank in rank_memories(few, job)])
    step_s, peak_bytes = step_time.total_s, sizes.total_bytes
    accelerator = job.cluster.accelerator
    reference_flop = accelerator.reference_flop_per_s * job.cluster.world_size * step_s
    peaks = np.array([accelerator.peak_flop_per_s(p) or np.inf for p in Precision])
    model_flop = model_flop_per_step(job)
    mfu = model_flop / reference_flop
    return PredictionColumns(
        step_time=step_time,
        memory=sizes,
        tokens_per_s=job.workload.tokens_per_step / step_s,
        mfu=mfu,
        hfu=(model_flop + recomputed_flop_per_step(x, job)) / reference_flop,
        precision_utilization=mfu * (accelerator.reference_flop_per_s / peaks)[x.precision],
        fits=peak_bytes <= accelerator.memory_bytes,
        fit_probability=fit_probability(peak_bytes, float(accelerator.memory_bytes)),
        relative_error=relative_error(step_time, job),
        validated=is_validated(job),
    )


def _step_time(x: LayoutColumns, job: Job, rank: RankStep) -> StepTimeColumns:
    return replace(
        rank.step_time,
        data_communication_s=data_communication_s(x, job, rank),
        optimizer_s=optimizer_s(x, job, owned_elements(x, rank.held)),
    )
