"""What stored trials teach about the next jobs."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.load import load_stack
from autotuner.costmodel.predict import predict_one
from autotuner.domain.jobs.calibration import Calibration
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.past_trial import PastTrial
from autotuner.search.learning.learnt import Learnt
from tests.builders import big_job

JOB = replace(big_job(), stack=load_stack("nemo"))
SMALL = replace(JOB, model=replace(JOB.model, num_layers=8))
"""Another model on the same platform."""


def past(
    slower: float,
    *,
    job: Job = JOB,
    micro_batch: int = 1,
    sweep: str = "s",
    at: float = 0.0,
    trainer: str | None = None,
) -> PastTrial:
    """A trial that took longer than predicted by this factor."""
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, micro_batch_size=micro_batch)
    return PastTrial(
        job=job,
        layout=layout,
        step_time_s=slower * predict_one(layout, job).step_time.total_s,
        sweep_id=sweep,
        finished_at=at,
        trainer=trainer,
    )


def taken(job: Job) -> float:
    """What a layout is predicted to take over what it would take on a typical cluster."""
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, micro_batch_size=4)
    typical = predict_one(layout, replace(job, calibration=None))
    return predict_one(layout, job).step_time.total_s / typical.step_time.total_s


def test_without_trials_the_job_stays_as_it_is() -> None:
    assert Learnt.of([]).calibrated(JOB) == JOB


def test_trials_of_another_model_on_the_platform_teach_its_speed() -> None:
    assert 1.0 < taken(Learnt.of([past(1.3, job=SMALL)]).calibrated(JOB)) < 1.3


def test_trials_of_another_trainer_teach_less_than_a_trainer_s_own() -> None:
    learnt = Learnt.of([past(1.3, trainer="theirs")])
    assert 1.0 < taken(learnt.calibrated(JOB)) < taken(learnt.calibrated(JOB, "theirs")) < 1.3


def test_what_a_job_was_calibrated_by_before_is_not_counted_again() -> None:
    learnt = Learnt.of([past(1.3, job=SMALL)])
    once = learnt.calibrated(JOB)
    assert learnt.calibrated(once) == once
    before = replace(SMALL, calibration=Calibration(factor=2.0, deviation=0.1, num_runs=1))
    known = replace(past(1.3, job=SMALL), job=before)
    assert Learnt.of([known]).calibrated(JOB) == once


def test_a_lesson_names_the_platform_and_counts_trials_and_sweeps() -> None:
    learnt = Learnt.of([past(1.3, at=1.0), past(1.2, micro_batch=2, sweep="t", at=2.0), past(1.0, trainer="theirs")])
    ours, theirs = learnt.lessons()
    assert (ours.num_trials, ours.num_sweeps, ours.last_finished_at) == (2, 2, 2.0)
    assert ours.platform.stack == "nemo"
    assert ours.calibration is not None
    assert ours.calibration.factor > 1.0
    assert theirs.platform.trainer == "theirs"


def test_of_trials_that_all_ran_out_of_memory_no_speed_is_learnt() -> None:
    (lesson,) = Learnt.of([replace(past(1.0), step_time_s=None)]).lessons()
    assert lesson.calibration is None


def test_a_calibration_says_from_how_many_trials_and_sweeps_it_is() -> None:
    trials = [past(1.2, sweep="a"), past(1.2, micro_batch=2, sweep="a"), past(1.2, sweep="b")]
    known = Learnt.of([*trials, past(1.2, sweep="c", trainer="theirs")]).calibrated(JOB).calibration
    assert known is not None
    assert (known.num_runs, known.num_trials, known.num_sweeps) == (4, 4, 3)
