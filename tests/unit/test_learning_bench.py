"""What bench/learning.py takes for a team's history, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.backtest.table import Sheet
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import predict
from autotuner.domain.jobs.calibration import Calibration
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from bench.learning import Left, Told, figures, left_out, lines, past_trials, teams, worse_beyond_noise
from tests.builders import big_job

LAYOUTS = LayoutColumns.from_layouts(
    Layout(tensor_parallel_degree=tensor, data_parallel_replicate_degree=64 // tensor, micro_batch_size=size)
    for tensor in (1, 2, 4, 8)
    for size in (1, 2)
)


def sheet(name: str, job: Job, slower: float) -> Sheet:
    seconds = slower * predict(LAYOUTS, job).step_time.total_s
    return Sheet(name=name, job=job, layouts=LAYOUTS, step_time_s=seconds, source="a paper")


JOB = big_job()
SMALL = replace(JOB, model=replace(JOB.model, num_layers=16))
SHEETS = [sheet("large", JOB, 1.3), sheet("small", SMALL, 1.3)]


def median_error(_: object, known: str) -> float:
    return {"nothing": 0.1, "all": 0.2}[known]


def test_a_team_is_a_source_of_several_sheets_whose_cluster_nobody_knows() -> None:
    calibrated = replace(JOB, calibration=Calibration(factor=1.3, deviation=0.01, num_runs=9))
    alone = replace(SHEETS[0], source="another")
    found = teams([replace(SHEETS[0], job=calibrated), SHEETS[1], alone])
    assert list(found) == ["a paper"]
    assert all(one.job.calibration is None for one in found["a paper"])


def test_every_run_of_a_sheet_is_a_past_trial_and_one_without_a_time_ran_out_of_memory() -> None:
    seconds = np.where(np.arange(len(LAYOUTS)) == 0, np.nan, SHEETS[0].step_time_s)
    trials = past_trials([replace(SHEETS[0], step_time_s=seconds)])
    assert [trial.ran_out_of_memory for trial in trials] == [True] + [False] * (len(LAYOUTS) - 1)


def test_a_history_that_was_as_slow_makes_the_left_out_sheet_right() -> None:
    left = left_out("a paper", SHEETS[0], past_trials(SHEETS[1:]))
    before, after = figures([left], "nothing"), figures([left], "all")
    assert before.median == pytest.approx(1 - 1 / 1.3)
    assert after.median < before.median / 3
    assert after.half_width < before.half_width
    assert set(left.num_trials) == {"nothing", "calibrated", "all"}
    assert any("a paper" in line for line in lines([left]))


def test_a_figure_that_always_rises_is_worse_beyond_noise() -> None:
    nothing = Told(errors=np.zeros(1), deviations=np.ones(1))
    left = [Left(source="a paper", told={"nothing": nothing, "all": nothing}, num_trials={})] * 3
    assert worse_beyond_noise(left, median_error) == pytest.approx((0.1, 0.1))
