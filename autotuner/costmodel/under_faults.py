"""What layouts take under a fault trace: the sum over its stretches, each predicted with its links as they are then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.fault_trace import FaultTrace, Stretch
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.prediction import Prediction
from autotuner.costmodel.predict import PredictionColumns, TotalColumns, predict, predict_totals

REPLAN_STEPS = 2
"""Steps that still follow the old plan after a change of links: one that shows it and one in which all ranks agree
(PipeMorph, arXiv 2504.19232, re-plans with an iteration of lag)."""


def predict_under(x: LayoutColumns, job: Job, trace: FaultTrace | None) -> PredictionColumns:
    """Time and memory of every row on the links as the cluster says, with robust columns where there is a trace.

    The table is predicted once per distinct state of the links, of which a trace has a handful.
    """
    predicted = predict(x, job)
    if trace is None:
        return predicted
    healthy_s = predicted.step_time.total_s
    total_s: Floats = sum((one.total_s for one in _stretches(x, job, trace, healthy_s)), np.zeros(len(x)))
    robust_s = total_s / trace.num_steps
    return replace(predicted, robust_step_s=robust_s, robust_mfu=predicted.mfu * healthy_s / robust_s)


def totals_under(x: LayoutColumns, job: Job, trace: FaultTrace | None) -> TotalColumns:
    """What decides a ranking of every row: MFU under the trace, where there is one, and the healthy peak."""
    totals = predict_totals(x, job)
    if trace is None:
        return totals
    robust_mfu = predict_under(x, job, trace).robust_mfu
    assert robust_mfu is not None, "it was predicted under a trace"
    return replace(totals, mfu=robust_mfu)


def predicted_under(layout: Layout, job: Job, trace: FaultTrace | None) -> Prediction:
    """Time and memory of one legal layout, robust ones where there is a trace."""
    return predict_under(LayoutColumns.from_layouts([layout]), job, trace).row(0)


def step_times_under(layout: Layout, job: Job, trace: FaultTrace) -> tuple[float, ...]:
    """Seconds of every step of the trace, of one legal layout."""
    x = LayoutColumns.from_layouts([layout])
    stretches = _stretches(x, job, trace, predict(x, job).step_time.total_s)
    return tuple(seconds for one in stretches for seconds in one.step_times_s(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _StretchColumns:
    """Seconds of a step in one stretch, row by row: under the plan for the links before, and under its own."""

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
    """Each stretch of the trace, from the columns of its links' state.

    The plan of an adaptive layout for healthy links is that of zero bubbles, whose columns say what it takes on links
    that are not. A plan with more warm-up than healthy links need costs nothing there: it moves no pass of the critical
    path.
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
    """Step times before adaptive rows have heard of the links; other rows hear of nothing, and take what is planned."""
    rows = np.flatnonzero(x.pipeline_schedule == PipelineSchedule.ADAPTIVE)
    if not rows.size:
        return planned_s
    taken = x.take(rows)
    fixed = np.full(len(taken), int(PipelineSchedule.ZERO_BUBBLE), dtype=taken.pipeline_schedule.dtype)
    fixed_x = taken.only(*OPTIONS, pipeline_schedule=fixed, extra_slack=np.zeros_like(taken.extra_slack))
    unplanned_s: Floats = planned_s.copy()
    unplanned_s[rows] = np.maximum(planned_s[rows], predict(fixed_x, job).step_time.total_s)
    return unplanned_s
