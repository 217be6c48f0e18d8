"""What layouts take under a fault trace: the sum over its stretches, each predicted with its links as they are then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.domain.jobs.fault_trace import FaultTrace, Stretch
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.link_health import LinkHealth
from autotuner.domain.layouts.choice import PipelineSchedule
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.prediction import Prediction

__all__ = ["REPLAN_STEPS", "predict_under", "predicted_under"]

REPLAN_STEPS = 2
"""Steps that still follow the old plan after a change of links: one that shows it and one in which all ranks agree
(PipeMorph, arXiv 2504.19232, re-plans with an iteration of lag)."""

_Links = tuple[LinkHealth, ...]


def predict_under(x: LayoutColumns, job: Job, trace: FaultTrace | None) -> PredictionColumns:
    """Time and memory of every row on the links as the cluster says, with robust columns where there is a trace.

    The table is predicted once per distinct state of the links, of which a trace has a handful.
    """
    predicted = predict(x, job)
    if trace is None:
        return predicted
    robust_s = _total_s(x, job, trace, predicted.step_time.total_s) / trace.num_steps
    robust_mfu = predicted.mfu * predicted.step_time.total_s / robust_s
    return replace(predicted, robust_step_s=robust_s, robust_mfu=robust_mfu)


def predicted_under(layout: Layout, job: Job, trace: FaultTrace | None) -> Prediction:
    """The same of one legal layout."""
    return predict_under(LayoutColumns.from_layouts([layout]), job, trace).row(0)


def _total_s(x: LayoutColumns, job: Job, trace: FaultTrace, healthy_s: Floats) -> Floats:
    """Seconds of all steps of the trace."""
    stretches = trace.stretches()
    by_links = {(): healthy_s, **_step_s(x, job, {stretch.links for stretch in stretches} - {()})}
    total_s: Floats = sum((one.num_steps * by_links[one.links] for one in stretches), np.zeros(len(x)))
    return total_s + _replanning_s(x, job, stretches, by_links)


def _step_s(x: LayoutColumns, job: Job, states: set[_Links]) -> dict[_Links, Floats]:
    """Step times of every row in each state of the links."""
    return {links: predict(x, _job_with(job, links)).step_time.total_s for links in states}


def _job_with(job: Job, links: _Links) -> Job:
    """The job while its cluster's links are in a state; of one link the trace's word counts."""
    cluster = job.cluster
    return replace(job, cluster=replace(cluster, link_health=(*cluster.link_health, *links)))


def _replanning_s(
    x: LayoutColumns, job: Job, stretches: Sequence[Stretch], by_links: Mapping[_Links, Floats]
) -> Floats:
    """What steps cost adaptive layouts more that follow a plan made for other links.

    The plan for healthy links is that of zero bubbles, whose columns say what it takes on links that are not. A plan
    with more warm-up than healthy links need costs nothing there: it moves no pass of the critical path.
    """
    extra_s = np.zeros(len(x))
    rows = np.flatnonzero(x.pipeline_schedule == PipelineSchedule.ADAPTIVE)
    if not rows.size:
        return extra_s
    worse = [stretch for stretch in stretches if stretch.links]
    old_s = _step_s(_unplanned(x, rows), job, {stretch.links for stretch in worse})
    for stretch in worse:
        num_late = min(REPLAN_STEPS, stretch.num_steps)
        extra_s[rows] += num_late * np.maximum(0.0, old_s[stretch.links] - by_links[stretch.links][rows])
    return extra_s


def _unplanned(x: LayoutColumns, rows: np.ndarray) -> LayoutColumns:
    """The rows with the plan that they have while nothing is wrong."""
    taken = x.take(rows)
    fixed = np.full(len(taken), int(PipelineSchedule.ZERO_BUBBLE), dtype=taken.pipeline_schedule.dtype)
    return replace(taken, pipeline_schedule=fixed, extra_slack=np.zeros_like(taken.extra_slack))
