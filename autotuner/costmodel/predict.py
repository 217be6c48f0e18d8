"""Step time and memory of layouts, from the closed formulas of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TypeAlias, TypeVar, cast

import numpy as np

from autotuner.core.choices import PipelineSchedule, Precision
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import BF16_PARTS, Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction, StepTime
from autotuner.costmodel.evidence import Evidence
from autotuner.costmodel.layer.memory_bound import optimizer_s
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.recompute import model_flop_per_step, recomputed_flop_per_step
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.memory.peak import RankMemory, fullest_rank, peak_bytes, rank_memories
from autotuner.costmodel.memory.weights import owned_elements
from autotuner.costmodel.shared.low_precision import is_bf16_on_cores
from autotuner.costmodel.shared.sequences import batch_shapes, with_batch_fields
from autotuner.costmodel.shared.stages import candidate_ranks, fullest_candidates
from autotuner.costmodel.shared.table import row, taken, write, zipped
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import RANK_STEP_FIELDS, RankStep, RankWindow, before_data_s, total_s
from autotuner.costmodel.uncertainty import fit_probability, relative_error

Table = TypeVar("Table")


PredictionColumns: TypeAlias = Prediction[Floats, Integers, Booleans]
"""Predictions of many layouts; row i of each column belongs to layout i."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalColumns:
    """MFU and peak memory of many layouts, by which the layouts are ranked; row i belongs to layout i."""

    mfu: Floats
    peak_bytes: Floats


CHUNK = 1 << 16
"""Number of layouts that are predicted at once. Their columns fit into a core's cache, and a table of millions needs
little more memory."""


def predict(x: LayoutColumns, job: Job) -> PredictionColumns:
    """Return the predicted step time and memory of every layout. The layouts must be legal for the job.

    In addition to the result, the function needs memory for one chunk of ``CHUNK`` layouts, and one number per layout.

    Args:
        x: Legal layouts, one per row.
        job: Model, cluster, workload and software.

    Returns:
        A prediction whose numbers are columns of shape (layouts,): seconds, bytes, and shares from 0 to 1.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> from autotuner.core.workload import Workload
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> layouts = [Layout.parse("fsdp8 mb1 recompute-full"), Layout.parse("fsdp8 mb1")]
        >>> predictions = predict(LayoutColumns.from_layouts(layouts), job)
        >>> predictions.fits.tolist()
        [True, False]
    """
    return _by_chunks(_predict, x, job)


def predict_totals(x: LayoutColumns, job: Job) -> TotalColumns:
    """Return the predicted MFU and peak memory of every layout, with exactly the same values as ``predict``.

    Args:
        x: Legal layouts, one per row.
        job: Model, cluster, workload and software.

    Returns:
        MFU from 0 to 1 and peak bytes of a rank, of shape (layouts,).
    """
    return _by_chunks(_predict_totals, x, job)


def predict_peaks(x: LayoutColumns, job: Job) -> Floats:
    """Return the predicted peak memory of every layout, with exactly the same values as ``predict``.

    It takes a third of the time of ``predict_totals``.

    Args:
        x: Legal layouts, one per row.
        job: Model, cluster, workload and software.

    Returns:
        Peak bytes of a rank, of shape (layouts,).
    """
    if (x.pipeline_schedule == PipelineSchedule.ADAPTIVE).any():  # memory depends on the plan, and the plan on times
        return predict_totals(x, job).peak_bytes
    few, which = x.distinct(*with_batch_fields(RANK_STEP_FIELDS, job))
    memories = rank_memories(few, job, fullest_candidates(few, job))
    return peak_bytes(x, job, [taken(memory, which) for memory in memories])


def predict_one(layout: Layout, job: Job) -> Prediction:
    """Return the predicted step time and memory of one layout. The layout must be legal for the job.

    Args:
        layout: A legal layout.
        job: Model, cluster, workload and software.

    Returns:
        A prediction in seconds, bytes, and shares from 0 to 1.

    Example:
        >>> from autotuner.catalog.hardware import load_cluster
        >>> from autotuner.catalog.models import load_model
        >>> from autotuner.core.workload import Workload
        >>> workload = Workload(seq_len=8192, global_batch_size=64)
        >>> job = Job(model=load_model("llama-3.1-8b"), cluster=load_cluster("h100:8"), workload=workload)
        >>> prediction = predict_one(Layout.parse("fsdp8 mb1 recompute-full"), job)
        >>> prediction.fits, prediction.memory.worst_rank
        (True, 0)
        >>> prediction.step_time_s == prediction.step_time.total_s
        True
    """
    prediction: Prediction = row(predict(LayoutColumns.from_layouts([layout]), job), 0)
    return prediction


def _by_chunks(
    predict_chunk: Callable[[LayoutColumns, Job, ModelWork[Work]], Table], x: LayoutColumns, job: Job
) -> Table:
    """Return the tables of all chunks, one after the other. All chunks share the computed work of the model's parts."""
    works = ModelWork.of(x, job)
    if len(x) <= CHUNK:
        return predict_chunk(x, job, works)
    whole: Table | None = None
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        chunk = predict_chunk(x.take(rows), job, works.rows(rows))
        whole = whole or zipped(lambda column: np.empty(len(x), column.dtype), chunk)
        write(chunk, whole, rows)
    assert whole is not None
    return whole


def _predict_totals(x: LayoutColumns, job: Job, works: ModelWork[Work]) -> TotalColumns:
    few, which = x.distinct(*with_batch_fields(RANK_STEP_FIELDS, job))
    step, memories = _by_step(few, job, works.for_layouts(few, which))
    window = taken(step.window, which)
    step_s = total_s(
        before_data_s(step.step_time).take(which),
        _factor(job, "data_communication_s") * data_communication_s(x, job, window),
        step.step_time.bubble_s.take(which),
        _factor(job, "optimizer_s") * _update_s(x, job, window),
    )
    if job.calibration is not None:
        step_s = step_s * _beyond_peak(x, job, step_s)
    return TotalColumns(
        mfu=model_flop_per_step(job) / _reference_flop(job, step_s),
        peak_bytes=peak_bytes(x, job, [taken(memory, which) for memory in memories]),
    )


def _by_step(few: LayoutColumns, job: Job, works: ModelWork[Work]) -> tuple[RankStep, list[RankMemory]]:
    """Return the step and the memory of pipeline ranks, for each combination of ``RANK_STEP_FIELDS``."""
    ranks = candidate_ranks(few, job)
    step = RankStep.of(few, job, ranks.slowest, works)
    parts = {f.name: _row_factor(few, job, f.name) * getattr(step.step_time, f.name) for f in fields(StepTime)}
    return replace(step, step_time=StepTime(**parts)), rank_memories(few, job, step.keeping(ranks.fullest))


def _beyond_peak(x: LayoutColumns, job: Job, step_s: Floats) -> Floats:
    """Return the ratio of each calibrated step's speed to the accelerators' peak if that is above 1, otherwise 1.

    The peak is the higher one of the layout's precision and of the reference; it is the reference peak if the former is
    not known.
    """
    accelerator = job.cluster.accelerator
    peaks = np.array([max(accelerator.peak_flop_per_s(p), accelerator.reference_flop_per_s) for p in Precision])
    least_s = model_flop_per_step(job) / (peaks[x.precision] * job.cluster.world_size)
    beyond: Floats = np.maximum(least_s / step_s, 1.0)
    return beyond


def _reference_flop(job: Job, step_s: Floats) -> Floats:
    """Return the FLOP that the whole job could execute in this step time at its reference peak."""
    return job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size * step_s


def _predict(x: LayoutColumns, job: Job, works: ModelWork[Work]) -> PredictionColumns:
    few, which = x.distinct(*with_batch_fields(RANK_STEP_FIELDS, job))
    step, memories = _by_step(few, job, works.for_layouts(few, which))
    step_time = _step_time(x, job, taken(step, which))
    sizes = fullest_rank(x, job, [taken(memory, which) for memory in memories])
    step_s = step_time.total_s
    if job.calibration is not None:
        beyond = _beyond_peak(x, job, step_s)
        step_time, step_s = _longer(step_time, beyond), step_s * beyond
    needed_bytes = sizes.total_bytes
    accelerator = job.cluster.accelerator
    reference_flop = _reference_flop(job, step_s)
    peaks = np.array([accelerator.peak_flop_per_s(p) or np.inf for p in Precision])
    model_flop = model_flop_per_step(job)
    mfu = model_flop / reference_flop
    batches = None if job.workload.lengths is None else batch_shapes(x, job)
    validated, never_compared = Evidence.of(job).compared(x)
    return Prediction(
        step_time=step_time,
        memory=sizes,
        tokens_per_s=job.workload.tokens_per_step / step_s,
        mfu=mfu,
        hfu=(model_flop + recomputed_flop_per_step(few, job).take(which)) / reference_flop,
        precision_utilization=mfu * (accelerator.reference_flop_per_s / peaks)[x.precision],
        fits=needed_bytes <= accelerator.memory_bytes,
        fit_probability=fit_probability(needed_bytes, float(accelerator.memory_bytes)),
        relative_error=relative_error(x, step_time, job),
        validated=validated,
        never_compared=cast("tuple[str, ...]", never_compared),  # a column of them
        imbalance=None if batches is None else batches.imbalance,
        padding_waste=None if batches is None else batches.padding_waste,
    )


def _longer(step_time: StepTime[Floats], factor: Floats) -> StepTime[Floats]:
    return zipped(lambda seconds: factor * seconds, step_time)


def _step_time(x: LayoutColumns, job: Job, rank: RankStep) -> StepTime[Floats]:
    return replace(
        rank.step_time,
        data_communication_s=_factor(job, "data_communication_s") * data_communication_s(x, job, rank.window),
        optimizer_s=_factor(job, "optimizer_s") * _update_s(x, job, rank.window),
    )


def _update_s(x: LayoutColumns, job: Job, window: RankWindow) -> Floats:
    """Return the time of the optimizer's step, and of rounding new weights if they are rounded once per step."""
    return optimizer_s(x, job, owned_elements(x, job, window.held)) + window.weight_casts_s


def _row_factor(x: LayoutColumns, job: Job, part: str) -> float | Floats:
    """Return the calibration factor of a part for each row, relative to a typical cluster."""
    if job.calibration is None or part not in BF16_PARTS or job.calibration.bf16_on_cores == 1.0:
        return _factor(job, part)
    factors: Floats = _factor(job, part) * np.where(is_bf16_on_cores(x, job), job.calibration.bf16_on_cores, 1.0)
    return factors


def _factor(job: Job, part: str) -> float:
    """Return the calibration factor of a part relative to a typical cluster; 1 without calibration."""
    return 1.0 if job.calibration is None else job.calibration.of(part)
