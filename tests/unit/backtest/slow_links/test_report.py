"""Predicted iterations under slow links beside measured ones: what is calibrated, what is judged, what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.backtest.slow_links.iteration import Iteration, Method, Pipeline
from autotuner.backtest.slow_links.predicted import pass_seconds, predicted_s
from autotuner.backtest.slow_links.report import judge_iterations
from autotuner.backtest.slow_links.table import IterationTable

PIPELINE = Pipeline("lab", "small", 4, 1, 1, 12)
ZB = Iteration(
    pipeline=PIPELINE,
    method=Method.ZERO_BUBBLE,
    delay_s=((2, 0.060),),
    hidden=None,
    healthy_s=0.780,
    measured_s=1.600,
)
DELEGATED = replace(ZB, method=Method.DELEGATED, measured_s=1.120)
ADAPTED = replace(ZB, method=Method.ADAPTED, measured_s=0.840)


def test_the_seconds_of_a_pass_follow_from_healthy_iterations_alone() -> None:
    assert pass_seconds([ZB, replace(DELEGATED, measured_s=9.0)]) == {PIPELINE: pytest.approx(0.020)}


def test_one_pipeline_has_one_pass_of_which_a_single_odd_iteration_changes_nothing() -> None:
    odd = replace(ADAPTED, healthy_s=1.5)
    assert pass_seconds([ZB, DELEGATED, odd])[PIPELINE] == pytest.approx(0.020)


def test_a_pipeline_that_ran_1f1b_alone_is_calibrated_by_that() -> None:
    alone = replace(ZB, method=Method.ONE_F_ONE_B, healthy_s=0.900)
    assert pass_seconds([alone])[PIPELINE] == pytest.approx(0.020)


def test_delegates_and_plans_take_what_the_paper_computes() -> None:
    pass_s = {PIPELINE: 0.020}
    assert predicted_s(DELEGATED, pass_s) == pytest.approx(1.120)
    assert predicted_s(ADAPTED, pass_s) == pytest.approx(0.840)


def test_a_delegated_send_costs_more_the_wider_the_model_is() -> None:
    narrow, wide = (predicted_s(replace(DELEGATED, hidden=width), {PIPELINE: 0.020}) for width in (1024, 8192))
    assert predicted_s(DELEGATED, {PIPELINE: 0.020}) < narrow < wide


def test_a_model_that_was_only_healthy_when_split_otherwise_has_passes_as_much_longer() -> None:
    deeper = PIPELINE._replace(num_ranks=8, num_micro_batches=24)
    known = predicted_s(replace(ZB, pipeline=deeper), {deeper: 0.010})
    assert predicted_s(replace(ZB, pipeline=deeper), {PIPELINE: 0.020}) == pytest.approx(known)


def test_methods_are_compared_where_they_ran_over_the_same_links() -> None:
    report = judge_iterations(IterationTable(iterations=(ZB, DELEGATED, ADAPTED)))
    assert (report.all.num_pairs, report.all.pairs_right) == (3, 3)
    assert (report.all.num_orders, report.all.orders_right) == (1, 1)
    assert [score.name for score in report.methods] == ["zb", "delegated", "adapted"]
    swapped = judge_iterations(IterationTable(iterations=(ZB, DELEGATED, replace(ADAPTED, measured_s=1.3))))
    assert (swapped.all.pairs_right, swapped.all.orders_right) == (2, 0)


def test_errors_are_those_of_every_row() -> None:
    report = judge_iterations(IterationTable(iterations=(DELEGATED, replace(ADAPTED, measured_s=0.800))))
    assert report.all.max_abs_error == pytest.approx(0.05)
    assert report.all.mean_error == pytest.approx(0.025)
    assert report.to_dict()["rows"][0]["slow_links"] == "2-3: 60 ms"


def test_a_model_without_a_healthy_iteration_is_left_out_and_said() -> None:
    report = judge_iterations(IterationTable(iterations=(replace(ZB, healthy_s=None),)))
    assert report.rows_left_out == {"no healthy iteration of the model to calibrate with": 1}
    assert report.all.median_abs_error is None
