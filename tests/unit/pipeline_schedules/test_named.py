"""Schedules by the names that layouts give them."""

from __future__ import annotations

from autotuner.core.choices import PipelineSchedule
from autotuner.pipeline_schedules.actions import one_f_one_b
from autotuner.pipeline_schedules.named import named_schedule
from autotuner.pipeline_schedules.plan import plan
from autotuner.pipeline_schedules.simulate import PassTimes


def test_a_plain_schedule_follows_from_its_sizes() -> None:
    assert named_schedule(PipelineSchedule.ONE_F_ONE_B, 4, 1, 8) == one_f_one_b(4, 8)


def test_the_adaptive_schedule_is_planned_from_times_where_they_are_known() -> None:
    slow, most = PassTimes.equal(4, 10.0, 10.0, 10.0, send_s=20.0), (6, 6, 6, 6)
    name = PipelineSchedule.ADAPTIVE
    assert named_schedule(name, 4, 1, 12) == plan(PassTimes.equal(4, 1.0, 1.0, 1.0), 12).schedule
    assert named_schedule(name, 4, 1, 12, times=slow, extra_slack=1) == plan(slow, 12, extra_slack=1).schedule
    limited = named_schedule(name, 4, 1, 12, times=slow, most_in_flight=most)
    assert max(limited.peak_in_flight()) == 6
