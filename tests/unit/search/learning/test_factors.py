"""What runs teach about the factors behind step times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import StepTime
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.uncertainty import PARTS
from autotuner.search.learning.factors import FACTORS, Factors, TimedRuns, factor_deviations
from autotuner.search.sampler.kinship import TIME_REACH, kinship
from tests.builders import big_job

JOB = big_job()
OTHERS = [replace(JOB, model=replace(JOB.model, num_layers=layers)) for layers in (16, 32, 48)]
LAYOUTS = [
    Layout(
        tensor_parallel_degree=tensor,
        pipeline_parallel_degree=pipeline,
        data_parallel_replicate_degree=64 // (tensor * pipeline),
        recompute=recompute,
    )
    for tensor in (1, 2, 4, 8)
    for pipeline in (1, 2, 4)
    for recompute in (Recompute.NONE, Recompute.FULL)
]
TENSOR = list(PARTS).index("tensor_communication_s")


def runs(job: Job, takes: Callable[[StepTime], float], layouts: Sequence[Layout] = tuple(LAYOUTS)) -> TimedRuns:
    return timed(job, layouts, [takes(predict_one(layout, job).step_time) for layout in layouts])


def timed(job: Job, layouts: Sequence[Layout], step_time_s: Sequence[float]) -> TimedRuns:
    """Runs of which only the step times are known."""
    pairs = zip(layouts, step_time_s, strict=True)
    return TimedRuns.of(
        job, [PastTrial(job=job, layout=one, step_time_s=s, sweep_id="s", finished_at=0.0) for one, s in pairs]
    )


def after(told: Sequence[tuple[Job, TimedRuns]], job: Job = JOB) -> Factors:
    jobs = list(dict.fromkeys([job, *(one for one, _ in told)]))
    numbers = [jobs.index(one) for one, _ in told]
    return Factors.after([some for _, some in told], numbers, kinship(jobs, FACTORS, TIME_REACH))


def slow_tensor(step_time: StepTime) -> float:
    """Tensor communication takes twice as long as predicted, all else what it should."""
    return step_time.total_s + step_time.tensor_communication_s


def test_a_part_that_takes_longer_in_other_jobs_is_found_and_the_others_stay() -> None:
    found = after([(job, runs(job, slow_tensor)) for job in OTHERS])
    logs = found.mean * factor_deviations(JOB)
    assert logs[TENSOR] == pytest.approx(np.log(2), rel=0.25)
    assert np.abs(np.delete(logs, TENSOR)).max() < 0.1


def test_runs_leave_less_doubt_about_the_parts_that_they_spend_time_on() -> None:
    left = np.diag(after([(job, runs(job, slow_tensor)) for job in OTHERS]).covariance)
    context = list(PARTS).index("context_communication_s")
    assert left[TENSOR] < 0.5
    assert left[context] == pytest.approx(1.0)  # none of them had context ranks


def test_half_of_the_runs_of_one_job_may_go_wrong_without_moving_what_others_say() -> None:
    def sometimes(layout: Layout) -> float:
        seconds = predict_one(layout, OTHERS[0]).step_time.total_s
        return seconds * (4.0 if layout.recompute is Recompute.FULL else 1.0)

    broken = timed(OTHERS[0], LAYOUTS, [sometimes(layout) for layout in LAYOUTS])
    healthy = [(job, runs(job, lambda step_time: step_time.total_s)) for job in OTHERS[1:]]
    found = after([(OTHERS[0], broken), *healthy])
    assert np.abs(found.mean * factor_deviations(JOB)).max() < 0.1


def test_a_job_that_is_left_out_is_predicted_from_the_others() -> None:
    found = after([(job, runs(job, slow_tensor)) for job in OTHERS])
    assert np.abs(found.left_out_errors).max() < np.abs(found.errors).max() / 3
    assert set(found.jobs.tolist()) == {1, 2, 3}
