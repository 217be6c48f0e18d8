from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.trial import TrialState
from autotuner.search.ranking import PredictedLayout
from autotuner.search.table.row import ranked_rows, untried_rows
from tests.builders import cpu_cluster, estimate, failure, prediction, small_trial, sweep_request, tiny_job
from tests.unit.search.table.rows import rows, trial, untried


def test_rows_are_ranked_by_what_the_sweep_maximises() -> None:
    ranked = rows(trial(0, "tp2 mb1", mfu=0.2), trial(1, "tp2 mb2", mfu=0.4))
    assert [(row.rank, row.trial.number) for row in ranked if row.trial] == [(1, 1), (2, 0)]
    assert [row.source for row in ranked] == ["measured", "measured"]
    assert sum(row.standing.probability_best for row in ranked if row.standing) == pytest.approx(1)


def test_what_failed_and_what_runs_again_has_no_row() -> None:
    failed = replace(trial(1, "tp2 mb2"), state=TrialState.FAILED, measurement=None, failure=failure())
    again = replace(trial(2, "tp2 mb1"), repeats=0)
    assert len(rows(trial(0, "tp2 mb1"), failed, again)) == 1


def test_an_error_is_that_of_the_measured_median() -> None:
    (row,) = rows(trial(0, "tp2 mb1", step_time_s=2.0, step_time_interval_s=0.04))
    assert row.step_error == pytest.approx(0.02)


def test_an_estimate_is_called_one_and_has_its_own_error() -> None:
    small = replace(trial(0, "tp2 mb1"), scaled=small_trial(), estimate=estimate())
    (row,) = rows(small)
    assert (row.source, row.step_error, row.peak_bytes) == ("estimated", 0.125, 12e6)


def test_tokens_have_a_price_where_the_cluster_has_one() -> None:
    cluster = cpu_cluster(price_per_accelerator_hour=3.6)
    (row,) = ranked_rows(sweep_request(job=tiny_job(cluster=cluster)), [trial(0, "tp2 mb1", tokens_per_s=1000.0)])
    assert row.price_per_million_tokens == pytest.approx(2 * 3.6 / 3600 / 1000 * 1e6)
    assert untried().price_per_million_tokens is None


def test_untried_rows_leave_out_what_any_trial_tried_and_call_figures_predicted() -> None:
    both = [PredictedLayout(layout=Layout.parse(words), prediction=prediction()) for words in ("tp2 mb1", "tp2 mb2")]
    (row,) = untried_rows(sweep_request(), both, [trial(0, "tp2 mb1")])
    assert str(row.layout) == "tp2 mb2 flash bf16"
    assert (row.source, row.rank, row.peak_bytes, row.step_error) == ("predicted", None, None, None)
    assert row.tokens_per_s == row.prediction.tokens_per_s


def test_a_row_says_what_the_sweep_maximises_as_reached_or_as_predicted() -> None:
    profile = (Weight(metric=Metric.TOKENS_PER_S, weight=1), Weight(metric=Metric.SIMPLICITY, weight=2))
    request = sweep_request(objective=Objective(profile=profile))
    one = Footprint(power=None, price_per_hour=0, co2_kg_per_hour=0, complexity=1)
    (row,) = ranked_rows(request, [trial(0, "tp2 mb1", tokens_per_s=1000.0, footprint=one)])
    assert row.value == pytest.approx(1000 * 0.5**2)
    expected = PredictedLayout(layout=Layout.parse("tp2 mb2"), prediction=prediction(), footprint=one)
    (untried_row,) = untried_rows(request, [expected], [])
    tokens = request.job.workload.tokens_per_step
    assert untried_row.value == pytest.approx(tokens / expected.prediction.step_time.total_s * 0.5**2)


def test_what_beside_speed_nobody_knows_has_no_value() -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.SIMPLICITY, weight=1))
    request = sweep_request(objective=Objective(profile=profile))
    (row,) = untried_rows(request, [PredictedLayout(layout=Layout.parse("tp2 mb2"), prediction=prediction())], [])
    assert row.value is None
