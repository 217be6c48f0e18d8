"""Predictions with links in other states: under a fault trace, and for a range of bandwidths between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.fault_trace import FaultTrace, Stretch
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.prediction import Prediction, StepTime
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.predict import PredictionColumns, TotalColumns, predict, predict_totals
from autotuner.costmodel.shared.stages import candidate_ranks
from autotuner.costmodel.shared.table import row
from autotuner.costmodel.step.data_parallel import data_communication_s
from autotuner.costmodel.step.rank_step import RankStep, before_data_s, total_s

REPLAN_STEPS = 2
"""Number of steps that still follow the old plan after a change of links: one step that shows the change, and one in
which all ranks agree (PipeMorph, arXiv 2504.19232, plans again with one iteration of delay)."""


def predict_under(x: LayoutColumns, job: Job, trace: FaultTrace | None) -> PredictionColumns:
    """Return the prediction of every layout; with a fault trace also the mean step time and MFU over its steps.

    A fault trace is a record of injected link faults. The cost model runs once for each distinct state of the links. A
    trace has only a few states.

    Args:
        x: Legal layouts, one per row.
        job: Model, cluster, workload and software.
        trace: Faults of links; None: the prediction has no columns about faults.
    """
    predicted = predict(x, job)
    if trace is None:
        return predicted
    healthy_s = predicted.step_time.total_s
    total_s: Floats = sum((one.total_s for one in _stretches(x, job, trace, healthy_s)), np.zeros(len(x)))
    robust_s = total_s / trace.num_steps
    return replace(predicted, robust_step_s=robust_s, robust_mfu=predicted.mfu * healthy_s / robust_s)


def totals_under(x: LayoutColumns, job: Job, trace: FaultTrace | None) -> TotalColumns:
    """Return MFU and peak memory of every layout. With a fault trace, MFU is computed from its mean step time.

    A fault trace is a record of injected link faults. The peak memory is always the peak on nominal links.
    """
    totals = predict_totals(x, job)
    if trace is None:
        return totals
    robust_mfu = predict_under(x, job, trace).robust_mfu
    assert robust_mfu is not None, "it was predicted under a trace"
    return replace(totals, mfu=robust_mfu)


def predicted_under(layout: Layout, job: Job, trace: FaultTrace | None) -> Prediction:
    """Return the prediction of one legal layout; with a fault trace also the mean step time and MFU over its steps.

    A fault trace is a record of injected link faults.
    """
    prediction: Prediction = row(predict_under(LayoutColumns.from_layouts([layout]), job, trace), 0)
    return prediction


def step_times_under(layout: Layout, job: Job, trace: FaultTrace) -> tuple[float, ...]:
    """Return the predicted seconds of each step of a fault trace (a record of injected link faults) for a layout."""
    x = LayoutColumns.from_layouts([layout])
    stretches = _stretches(x, job, trace, predict(x, job).step_time.total_s)
    return tuple(seconds for one in stretches for seconds in one.step_times_s(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _StretchColumns:
    """Seconds of a step in one stretch of the trace, by row.

    They are given under the plan for the previous links, and under the plan for the stretch's own links.
    """

    stretch: Stretch
    late_s: Floats
    planned_s: Floats

    @property
    def num_late(self) -> int:
        return min(REPLAN_STEPS, self.stretch.num_steps)

    @property
    def total_s(self) -> Floats:
        seconds: Floats = self.num_late * self.late_s + (self.stretch.num_steps - self.num_late) * self.planned_s
        return seconds

    def step_times_s(self, row: int) -> Iterator[float]:
        for step in range(self.stretch.num_steps):
            yield float((self.late_s if step < self.num_late else self.planned_s)[row])


def _stretches(x: LayoutColumns, job: Job, trace: FaultTrace, healthy_s: Floats) -> Iterator[_StretchColumns]:
    """Yield the step times of each stretch of the trace, in which the links keep their state.

    On nominal links, an adaptive layout has the plan of the zero-bubble schedule, so that schedule's time on degraded
    links applies until it adapts. A plan with more warm-up than nominal links need costs nothing, because it does not
    move the critical path.
    """
    known: dict[tuple[LinkHealth, ...], tuple[Floats, Floats]] = {(): (healthy_s, healthy_s)}
    for stretch in trace.stretches():
        if stretch.links not in known:
            slow = replace(job, cluster=job.cluster.with_link_health(stretch.links))
            planned_s = predict(x, slow).step_time.total_s
            known[stretch.links] = (_unplanned_s(x, slow, planned_s), planned_s)
        late_s, planned_s = known[stretch.links]
        yield _StretchColumns(stretch=stretch, late_s=late_s, planned_s=planned_s)


def _unplanned_s(x: LayoutColumns, job: Job, planned_s: Floats) -> Floats:
    """Return the step times before adaptive layouts have adapted to the links. Other layouts never adapt."""
    rows = np.flatnonzero(x.pipeline_schedule == PipelineSchedule.ADAPTIVE)
    if not rows.size:
        return planned_s
    taken = x.take(rows)
    fixed = np.full(len(taken), int(PipelineSchedule.ZERO_BUBBLE), dtype=taken.pipeline_schedule.dtype)
    fixed_x = taken.only(*OPTIONS, pipeline_schedule=fixed, extra_slack=np.zeros_like(taken.extra_slack))
    unplanned_s: Floats = planned_s.copy()
    unplanned_s[rows] = np.maximum(planned_s[rows], predict(fixed_x, job).step_time.total_s)
    return unplanned_s


def steps_by_bandwidth(x: LayoutColumns, job: Job, ends_bytes_per_s: tuple[float, float]) -> Callable[[float], Floats]:
    """Return a function that computes the step time of every layout from the bandwidth of the accelerators' ports.

    The bandwidth is in bytes per second, the step times are in seconds. If only data-parallel communication crosses the
    network between nodes, each call computes only this communication anew, and so is fast.

    Args:
        x: Legal layouts.
        job: The job. The bandwidth of degraded links changes in the same proportion.
        ends_bytes_per_s: Lowest and highest bandwidth with which the function will be called.
    """

    def whole(bytes_per_s: float) -> StepTime[Floats]:
        return predict(x, at_bandwidth(job, bytes_per_s)).step_time

    low, high = (whole(end) for end in ends_bytes_per_s)
    if not np.array_equal(before_data_s(low) + low.bubble_s, before_data_s(high) + high.bubble_s):
        return lambda bytes_per_s: whole(bytes_per_s).total_s
    window = RankStep.of(x, job, candidate_ranks(x, job).slowest, ModelWork.of(x, job).for_layouts(x)).window
    factor = 1.0 if job.calibration is None else job.calibration.of("data_communication_s")

    def by_data(bytes_per_s: float) -> Floats:
        data_s = factor * data_communication_s(x, at_bandwidth(job, bytes_per_s), window)
        return total_s(before_data_s(low), data_s, low.bubble_s, low.optimizer_s)

    return by_data


def at_bandwidth(job: Job, bytes_per_s: float) -> Job:
    """Return the job on a cluster whose nodes are connected by ports of this bandwidth, in bytes per second."""
    link = job.cluster.inter_node_link.with_bandwidth(bytes_per_s)
    return replace(job, cluster=replace(job.cluster, inter_node_link=link))
