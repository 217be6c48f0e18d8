"""What is expected of options that a space leaves out."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import PipelineSchedule
from autotuner.core.job import Job
from autotuner.core.rules.legality import reasons
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import predict_one
from autotuner.search.advice.unsearched import Unsearched, unsearched
from autotuner.search.ranking import PredictedLayout, best_predicted
from tests.builders import big_job


def best(job: Job, space: SearchSpace) -> PredictedLayout:
    return best_predicted(job, space, limit=1).rows[0]


def found(job: Job, space: SearchSpace) -> tuple[Unsearched, ...]:
    return unsearched(best(job, space), job, space)


def test_an_option_outside_the_space_is_named_with_what_it_saves() -> None:
    job, space = big_job(), SearchSpace(pipeline_parallel_degree=(8,))
    first = best(job, space)
    for one in found(job, space):
        assert not reasons(one.layout, job)
        assert one.prediction == predict_one(one.layout, job)
        assert one.saved_share == 1 - one.prediction.step_time.total_s / first.prediction.step_time.total_s > 0
    assert "compiled off → on" in {one.change for one in found(job, space)}


def test_what_saves_most_comes_first() -> None:
    shares = [one.saved_share for one in found(big_job(), SearchSpace(pipeline_parallel_degree=(8,)))]
    assert len(shares) > 1
    assert shares == sorted(shares, reverse=True)


def test_values_that_the_space_holds_are_not_named() -> None:
    space = SearchSpace(pipeline_parallel_degree=(8,))
    searched = found(big_job(), space.with_axes(compiled=(False, True)))
    assert any("compiled" in one.change for one in found(big_job(), space))
    assert searched
    assert not any("compiled" in one.change for one in searched)


def test_what_the_software_does_not_have_is_not_named() -> None:
    job, space = big_job(), SearchSpace(pipeline_parallel_degree=(8,))
    schedules = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED_1F1B)
    plain = replace(job, stack=replace(job.stack, compiles=False, pipeline_schedules=schedules))
    for one in found(plain, space):
        assert not one.layout.compiled
        assert one.layout.pipeline_schedule in schedules
