"""Reports of ranks, joined to steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.measurement import StepReport
from autotuner.core.measuring import Peak
from autotuner.core.trial import FailureKind
from autotuner.launch.trainers.progress import Progress
from autotuner.launch.trainers.reported import ReportedMemory, ReportedStep
from tests.trials.launching import ENDLESS, SHORT, spec

PEAK = Peak(flop_per_s=2e11, source="data sheet")


def progress(**settings: Any) -> Progress:
    return Progress(spec("progress", replace(ENDLESS, **settings)), PEAK)


def step(number: int, rank: int | None = 0, **said: Any) -> ReportedStep:
    return ReportedStep(step=number, rank=rank, **{"step_time_s": 1.0, **said})


def told(heard: Progress, *reports: ReportedStep, at_s: float = 0.0) -> list[StepReport]:
    for report in reports:
        heard.heard(report, at_s)
    return heard.whole_steps()


def test_a_step_is_whole_when_every_rank_told_of_it_and_takes_as_long_as_the_slowest() -> None:
    heard = progress()
    assert told(heard, step(0, 0, step_time_s=1.0)) == []
    (report,) = told(heard, step(0, 1, step_time_s=3.0))
    assert (report.step, report.step_time_s) == (0, 3.0)


def test_a_step_of_one_reporting_rank_is_whole_at_the_look_after_a_later_one() -> None:
    heard = progress()
    assert told(heard, step(0)) == []
    assert told(heard, step(1)) == []  # a rank that was read before may have told of step 0 since
    assert [report.step for report in told(heard)] == [0]


def test_at_the_end_every_step_is_as_whole_as_it_will_be() -> None:
    heard = progress()
    told(heard, step(0), step(1, 1))
    assert [report.step for report in heard.whole_steps(is_over=True)] == [0, 1]


def test_steps_count_from_0_whatever_the_trainer_begins_with() -> None:
    heard = progress()
    reports = told(heard, step(1, 0), step(1, 1), step(2, 0), step(2, 1))
    assert [report.step for report in reports] == [0, 1]


def test_the_loss_is_the_mean_of_the_ranks_that_know_one() -> None:
    (report,) = told(progress(), step(0, 0, loss=None), step(0, 1, loss=5.0))
    assert report.loss == 5.0
    (report,) = told(progress(), step(0, 0, loss=4.0), step(0, 1, loss=5.0))
    assert report.loss == 4.5


def test_a_loss_that_nobody_knows_is_no_number_and_no_failure() -> None:
    heard = progress()
    (report,) = told(heard, step(0, 0), step(0, 1))
    assert math.isnan(report.loss)
    assert heard.failure is None
    assert not heard.tells_losses


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_it(loss: float) -> None:
    heard = progress()
    assert told(heard, step(0, 0), step(0, 1, loss=loss)) == []
    assert heard.failure is not None
    assert (heard.failure.kind, heard.failure.rank) == (FailureKind.NUMERICS, 1)


def test_without_a_time_a_step_takes_from_the_one_before_to_itself() -> None:
    heard = progress()
    line = step(1, None, step_time_s=None)
    heard.heard(line, 10.0)
    heard.heard(replace(line, step=2), 10.5)
    heard.heard(replace(line, step=4, num_steps=2), 12.5)
    reports = heard.whole_steps(is_over=True)
    assert [report.step_time_s for report in reports] == [0.5, 1.0]  # nothing tells what the first took
    assert heard.num_heard == 4


def test_two_lines_of_a_step_that_no_rank_signed_are_joined() -> None:
    heard = progress()
    lines = (step(3, None, loss=2.0, step_time_s=None), step(3, None, step_time_s=0.5, tokens=512, peak_bytes=7))
    for line in lines:
        heard.heard(line, 1.0)
    (report,) = heard.whole_steps(is_over=True)
    assert (report.loss, report.step_time_s) == (2.0, 0.5)
    assert heard.failure is None
    assert heard.peak_bytes == {0: 7}


def test_memory_is_the_most_that_each_rank_told() -> None:
    heard = progress()
    told(heard, step(0, 1, peak_bytes=5), step(1, 1, peak_bytes=4))
    heard.heard(ReportedMemory(rank=0, peak_bytes=9), 0.0)
    heard.heard(ReportedMemory(rank=7, peak_bytes=9), 0.0)  # of no rank of this trial
    assert heard.peak_bytes == {1: 5, 0: 9}


def test_tokens_make_the_rate_and_mfu_that_were_reached() -> None:
    (usual,) = told(progress(), step(0, 0), step(0, 1))
    (fewer,) = told(progress(), step(0, 0, tokens=480), step(0, 1, tokens=480))
    assert usual.tokens_per_s == 512
    assert fewer.tokens_per_s == 480
    assert fewer.mfu == pytest.approx(usual.mfu * 480 / 512)


def test_tokens_of_one_rank_alone_end_it() -> None:
    heard = progress()
    told(heard, step(0, 0, tokens=256), step(0, 1, tokens=256))
    assert heard.failure is not None
    assert "256 tokens" in heard.failure.message


def test_a_rank_that_tells_of_a_step_twice_ends_it() -> None:
    heard = progress()
    told(heard, step(0, 0), step(0, 0))
    assert heard.failure is not None
    assert "twice" in heard.failure.message


def test_a_rank_that_the_trial_does_not_have_ends_it() -> None:
    heard = progress()
    told(heard, step(0, 0), step(0, 2))
    assert heard.failure is not None
    assert "rank 2 told of step 0, and the trial has 2" in heard.failure.message


@pytest.mark.parametrize(
    "said", [{"step_time_s": 0.0}, {"step_time_s": -1.0}, {"step_time_s": math.nan}, {"num_steps": 0}, {"tokens": 0}]
)
def test_numbers_that_cannot_be_are_no_step(said: dict[str, Any]) -> None:
    heard = progress()
    heard.heard(step(0, 0, **said), 0.0)
    assert heard.whole_steps(is_over=True) == []


def test_a_step_that_comes_after_it_was_taken_for_whole_is_left_out() -> None:
    heard = progress()
    told(heard, step(0), step(1))
    assert [report.step for report in told(heard)] == [0]
    assert told(heard, step(0, 1)) == []


def test_enough_is_what_our_own_trial_would_call_enough() -> None:
    heard = Progress(spec("progress", SHORT), PEAK)
    for number in range(5):
        told(heard, step(number, 0), step(number, 1))
    assert [report.is_warmup for report in heard.steps] == [True, False, False]
    assert heard.is_done
    assert heard.is_enough
