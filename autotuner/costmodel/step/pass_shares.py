"""PassShares: how a step's computation divides into passes, where a prediction tells it by kind of work."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import SPLIT_SCHEDULES
from autotuner.costmodel.layer.model_work import ModelWork, PartWorks
from autotuner.costmodel.pipeline.rank_load import critical_ranks, num_micro_batches
from autotuner.costmodel.step.critical_rank import slowest_rank
from autotuner.costmodel.step.rank_step import RankStep


@dataclass(frozen=True, slots=True, kw_only=True)
class PassShares:
    """Shares of the slowest pipeline rank's computation, nothing of it done again; they sum to 1.

    Attributes:
        forward: Before the loss.
        backward: After it: all gradients, or those of inputs alone where a schedule defers those of weights.
        weight: Gradients of weights that a schedule defers; else 0.
    """

    forward: float
    backward: float
    weight: float


def pass_shares(layout: Layout, job: Job) -> PassShares:
    """The shares of one legal layout, by the laws of its prediction.

    The other half of a matrix product's backward pass, gradients of weights, is told apart where the schedule does so.
    """
    x = LayoutColumns.from_layouts([layout])
    part_works = PartWorks.of(x, job)
    works = ModelWork.of(x, job, part_works)
    load, m = slowest_rank(x, job, works.passes(), critical_ranks(x, job)).load, num_micro_batches(x, job)
    step = RankStep.of(x, job, (load,), part_works)
    parts = step.step_time
    computed_s = _only(parts.matrix_s + parts.attention_s + parts.pointwise_s + parts.host_s)
    deferred_s = _only(m * works.on(load).weight_gradient_s) if layout.pipeline_schedule in SPLIT_SCHEDULES else 0.0
    forward, weight = _only(m * step.window.forward_s) / computed_s, deferred_s / computed_s
    return PassShares(forward=forward, backward=1 - forward - weight, weight=weight)


def _only(column: Floats) -> float:
    return float(column[0])
