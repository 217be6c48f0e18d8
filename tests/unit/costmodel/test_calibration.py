"""What measured runs teach about a cluster."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.software import load_stack
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Calibration, Job, PartFactor
from autotuner.core.layout import Layout
from autotuner.costmodel.calibration import MeasuredRuns, calibrated, calibrated_by_both
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import CLUSTER
from tests.builders import big_job

JOB = replace(big_job(), stack=load_stack("nemo"))
LAYOUTS = LayoutColumns.from_layouts(
    [Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=8, micro_batch_size=size) for size in (1, 2, 4, 8)]
)
SMALL = replace(JOB, model=replace(JOB.model, num_layers=8))
"""Another model on the same cluster."""


def runs(factor: float, count: int = 4, job: Job = JOB) -> MeasuredRuns:
    """So many layouts, each slower than predicted by the factor."""
    layouts = LAYOUTS.take(slice(count))
    return MeasuredRuns(job=job, layouts=layouts, step_time_s=factor * predict(layouts, job).step_time.total_s)


def known(job: Job) -> Calibration:
    assert job.calibration is not None
    return job.calibration


def test_without_runs_the_job_stays_as_it_is() -> None:
    assert calibrated(JOB, []) is JOB
    assert calibrated(JOB, [runs(2.0, 0)]) is JOB


def test_the_factor_moves_towards_what_was_measured_and_further_with_each_run() -> None:
    factors = [known(calibrated(JOB, [runs(1.3, count)])).factor for count in (1, 2, 3, 4)]
    assert factors == sorted(factors)
    assert 1.0 < factors[0] < factors[-1] < 1.3


def test_each_run_leaves_less_doubt_about_the_factor() -> None:
    deviations = [CLUSTER, *(known(calibrated(JOB, [runs(1.0, count)])).deviation for count in (1, 2, 3, 4))]
    assert deviations == sorted(deviations, reverse=True)


def test_runs_as_predicted_say_that_the_cluster_is_typical() -> None:
    assert known(calibrated(JOB, [runs(1.0)])).factor == pytest.approx(1.0, abs=1e-12)  # rounding


def test_runs_of_another_model_on_the_cluster_teach_the_same_factor() -> None:
    ours, theirs = known(calibrated(JOB, [runs(1.2)])), known(calibrated(JOB, [runs(1.2, job=SMALL)]))
    assert theirs.factor == pytest.approx(ours.factor, rel=0.02)  # their steps are made of other shares of parts


def test_the_posterior_is_that_of_a_mean_with_known_deviations() -> None:
    one, two = (known(calibrated(JOB, [runs(math.e, count)])) for count in (1, 2))
    # each of these layouts tells as much: its step is made of nearly the same shares
    said = one.deviation**-2 - CLUSTER**-2
    assert math.log(one.factor) == pytest.approx(said * one.deviation**2, rel=1e-9)  # rounding
    assert two.deviation**-2 == pytest.approx(CLUSTER**-2 + 2 * said, rel=0.05)


def test_what_was_known_before_counts_as_much_as_it_is_certain() -> None:
    sure = replace(JOB, calibration=Calibration(factor=2.0, deviation=1e-6, num_runs=7))
    after = known(calibrated(sure, [runs(1.0)]))
    assert after.factor == pytest.approx(2.0, rel=1e-4)  # four runs against a certainty
    assert after.num_runs == 11


def test_predictions_after_a_calibration_hold_for_other_layouts() -> None:
    after = calibrated(JOB, [runs(1.25)])
    ratio = predict(LAYOUTS, after).step_time.total_s / predict(LAYOUTS, JOB).step_time.total_s
    assert ratio == pytest.approx(np.full(4, known(after).factor))  # rounding


def test_two_calibrations_of_different_runs_are_one_of_all_these_runs() -> None:
    few, many = runs(1.4, 1), runs(1.2)
    one, other = known(calibrated(JOB, [few])), known(calibrated(JOB, [many]))
    both = known(calibrated_by_both(replace(JOB, calibration=one), other))
    together = known(calibrated(JOB, [few, many]))
    assert both.factor == pytest.approx(together.factor)
    assert both.deviation == pytest.approx(together.deviation)
    assert both.num_runs == together.num_runs == 5


def test_of_two_calibrations_of_which_one_is_unknown_the_other_counts() -> None:
    one = known(calibrated(JOB, [runs(1.2)]))
    assert calibrated_by_both(JOB, one).calibration == one
    assert calibrated_by_both(replace(JOB, calibration=one), None).calibration == one


def test_runs_of_the_whole_step_leave_what_trials_told_of_the_parts() -> None:
    parts = (PartFactor(part="matrix_s", factor=1.2, deviation=0.05),)
    detailed = Calibration(
        factor=1.1, deviation=0.03, num_runs=4, num_trials=4, parts=parts, correlations=((1.0, 0.0), (0.0, 1.0))
    )
    sent = Calibration(factor=1.3, deviation=0.03, num_runs=2)
    for own, other in ((detailed, sent), (sent, detailed)):
        both = known(calibrated_by_both(replace(JOB, calibration=own), other))
        assert both.parts == parts
        assert 1.1 < both.factor < 1.3
        assert (both.num_runs, both.num_trials) == (6, 4)
