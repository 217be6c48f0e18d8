from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.job import Calibration
from autotuner.costmodel.predict import predict_one
from autotuner.search.sampler.stand_ins import StandIns
from tests.builders import h100
from tests.unit.search.sampler.test_full_size import LARGE_LAYOUT, SMALL, SMALL_LAYOUT, STAND_IN, TARGET


def test_a_small_trial_has_the_prediction_of_its_own_job_and_the_layout_that_it_stands_for() -> None:
    points = StandIns(TARGET).times([(LARGE_LAYOUT, STAND_IN)]).points
    assert points.log_predicted[0] == pytest.approx(math.log(predict_one(SMALL_LAYOUT, SMALL).step_time.total_s))
    assert points.layouts.row(0) == LARGE_LAYOUT
    assert points.jobs.tolist() == [1]


def test_equal_small_jobs_are_one_job_and_that_of_the_table_is_the_first() -> None:
    itself = replace(STAND_IN, job=TARGET, layout=LARGE_LAYOUT)
    points = StandIns(TARGET).times([(LARGE_LAYOUT, one) for one in (STAND_IN, itself, STAND_IN)]).points
    assert points.jobs.tolist() == [1, 0, 1]


def test_what_is_known_of_a_clusters_speed_holds_for_a_part_of_it() -> None:
    known = replace(TARGET, calibration=Calibration(factor=1.3, deviation=0.02, num_runs=9))
    slower = StandIns(known).times([(LARGE_LAYOUT, STAND_IN)]).points.log_predicted
    usual = StandIns(TARGET).times([(LARGE_LAYOUT, STAND_IN)]).points.log_predicted
    assert slower - usual == pytest.approx(math.log(1.3))


def test_what_is_known_of_a_clusters_speed_says_nothing_of_other_hardware() -> None:
    known = replace(TARGET, calibration=Calibration(factor=1.3, deviation=0.02, num_runs=9))
    elsewhere = replace(STAND_IN, job=replace(SMALL, cluster=replace(SMALL.cluster, accelerator=h100(name="h200"))))
    points = [StandIns(job).times([(LARGE_LAYOUT, elsewhere)]).points.log_predicted for job in (known, TARGET)]
    assert np.array_equal(points[0], points[1])


def test_a_measured_peak_is_compared_with_what_was_predicted_to_be_measured() -> None:
    memory = predict_one(SMALL_LAYOUT, SMALL).memory
    stand_ins = StandIns(TARGET)
    assert stand_ins.allowance_bytes(STAND_IN) == pytest.approx(memory.allowance_bytes)
    assert math.exp(stand_ins.peaks([(LARGE_LAYOUT, STAND_IN)]).points.log_predicted[0]) == pytest.approx(
        memory.total_bytes
    )
