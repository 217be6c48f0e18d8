from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import PipelineSchedule
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import REPLAN_STEPS, predicted_under
from tests.builders import cpu_layout, tiny_job

TRACE = FaultTrace.parse("5;2_3;0.06\n15;2_3;0", num_steps=20)


def pp4(schedule: PipelineSchedule) -> Layout:
    return cpu_layout(pipeline_parallel_degree=4, micro_batch_size=1, pipeline_schedule=schedule)


def while_slow(job: Job) -> Job:
    (slow,) = (stretch.links for stretch in TRACE.stretches() if stretch.links)
    return replace(job, cluster=replace(job.cluster, link_health=slow))


def test_without_a_trace_nothing_is_said_of_one() -> None:
    predicted = predicted_under(pp4(PipelineSchedule.ONE_F_ONE_B), tiny_job(4), None)
    assert (predicted.robust_step_s, predicted.robust_mfu) == (None, None)


def test_a_trace_takes_what_its_stretches_take_each_on_its_own_links() -> None:
    job, layout = tiny_job(4), pp4(PipelineSchedule.ZERO_BUBBLE)
    healthy, slow = (predict_one(layout, one).step_time.total_s for one in (job, while_slow(job)))
    predicted = predicted_under(layout, job, TRACE)
    assert predicted.robust_step_s == pytest.approx((10 * healthy + 10 * slow) / 20)  # a float sum
    assert predicted.robust_mfu == pytest.approx(predicted.mfu * healthy / (predicted.robust_step_s or 0.0))


def test_an_adaptive_layout_follows_its_old_plan_for_two_steps_of_each_change_for_the_worse() -> None:
    job = tiny_job(4)
    adaptive, fixed = (pp4(one) for one in (PipelineSchedule.ADAPTIVE, PipelineSchedule.ZERO_BUBBLE))
    healthy, slow = (predict_one(adaptive, one).step_time.total_s for one in (job, while_slow(job)))
    late = max(slow, predict_one(fixed, while_slow(job)).step_time.total_s)
    total_s = 10 * healthy + (10 - REPLAN_STEPS) * slow + REPLAN_STEPS * late
    assert predicted_under(adaptive, job, TRACE).robust_step_s == pytest.approx(total_s / 20)  # a float sum
