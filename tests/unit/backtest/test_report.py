"""Tests of ``autotuner.backtest.report``."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from autotuner.backtest.replay import PROPOSERS, Replay
from autotuner.backtest.report import GIVEN, Rows, Score, backtest, corrected, judge, mean, quantile, share, spearman
from autotuner.backtest.table import REQUIRED_COLUMNS, Sheet, Table
from tests.unit.backtest.sheets import JOB, LAYOUTS, PREDICTED_S, sheet, with_values

NOTHING = np.empty(0)


def test_the_rank_correlation_of_any_increasing_function_is_one() -> None:
    values = np.array([3.0, 1.0, 2.0, 5.0])
    assert spearman(values, np.exp(values)) == pytest.approx(1.0)  # rounding of the correlation
    assert spearman(values, -values) == pytest.approx(-1.0)


def test_equal_values_share_their_mean_rank() -> None:
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(np.sqrt(0.9))


@pytest.mark.parametrize("constant", [np.ones(4), np.ones(1), NOTHING])
def test_one_value_has_no_rank_correlation(constant: np.ndarray) -> None:
    assert spearman(constant, np.arange(constant.size, dtype=np.float64)) is None


def test_figures_of_no_rows_are_none() -> None:
    assert (share(NOTHING > 0), mean(NOTHING), quantile(NOTHING, 0.5)) == (None, None, None)


def test_a_quantile_is_interpolated_between_values() -> None:
    assert quantile(np.array([1.0, 2.0]), 0.5) == 1.5


def test_without_known_layouts_the_predictions_are_believed() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2))
    believed = corrected(replay)
    assert believed.step_time_s.tolist() == replay.predictions.step_time.total_s.tolist()
    assert believed.relative_error.tolist() == replay.predictions.relative_error.tolist()
    assert believed.fits.tolist() == replay.predictions.fits.tolist()


def test_known_step_times_move_those_of_other_layouts_towards_them() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2)).knowing(4, seed=0)
    others = replay.open
    ratio = corrected(replay).step_time_s[others] / replay.predictions.step_time.total_s[others]
    assert ratio.min() > 1.0
    # four of sixteen cannot tell which parts are slow, so some factors come out too large and others too small
    assert np.median(np.abs(np.log(ratio / 2))) < np.log(2) / 2


def test_known_step_times_that_were_predicted_well_narrow_the_intervals_of_others() -> None:
    replay = Replay.of(sheet()).knowing(4, seed=0)
    others = replay.open
    assert (corrected(replay).relative_error[others] < replay.predictions.relative_error[others]).all()


def test_a_known_run_out_of_memory_refuses_layouts_that_need_as_much() -> None:
    peaks = Replay.of(sheet()).predictions.memory.total_bytes
    accelerator = replace(JOB.cluster.accelerator, memory_bytes=int(peaks.max() * 1.01))
    edge = replace(JOB, cluster=replace(JOB.cluster, accelerator=accelerator))
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan), job=edge))
    assert corrected(replay).fits.all()
    assert not corrected(replay.knowing(4, seed=0)).fits[peaks.argmax()]


def test_nothing_is_learnt_about_time_from_runs_out_of_memory() -> None:
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan))).knowing(4, seed=0)
    assert corrected(replay).step_time_s == pytest.approx(replay.predictions.step_time.total_s)  # exp(log(x))


def rows(measured_s: list[float], predicted_s: float = 1.0, relative_error: float = 0.25) -> Rows:
    count = len(measured_s)
    return Rows(
        measured_s=np.array(measured_s),
        predicted_s=np.full(count, predicted_s),
        relative_error=np.full(count, relative_error),
        fits=np.full(count, True),
    )


def test_errors_are_relative_to_what_was_measured_and_runs_out_of_memory_have_none() -> None:
    assert rows([0.5, np.nan, 2.0]).absolute_errors == pytest.approx([1.0, 0.5])  # 1 / 0.5 and 1 / 2


def test_a_step_time_at_the_end_of_its_interval_is_covered_and_one_beyond_is_not() -> None:
    assert rows([0.8, 1.25, np.nan, 0.79, 1.26]).covered.tolist() == [True, True, False, False]


def test_a_table_that_does_as_predicted_costs_one_trial_and_loses_nothing() -> None:
    (search,) = judge(sheet(), num_seeds=3, num_given=0).searches
    assert search.trials["ours"].tolist() == [1, 1, 1]
    assert search.regret.tolist() == [0.0, 0.0, 0.0]
    assert search.spearman == pytest.approx(1.0)  # rounding of the correlation
    assert not search.best_refused


def test_every_proposer_searches_once_per_seed() -> None:
    (search,) = judge(sheet(), num_seeds=3, num_given=0).searches
    assert {name: counts.size for name, counts in search.trials.items()} == dict.fromkeys(PROPOSERS, 3)


def test_a_first_choice_that_is_slower_than_the_best_is_regretted() -> None:
    best = PREDICTED_S.min() / 2
    (search,) = judge(sheet(with_values(PREDICTED_S, {9: best})), num_seeds=1, num_given=0).searches
    assert search.regret == pytest.approx([0.5])  # twice as slow: half of the MFU is lost
    assert search.trials["ours"][0] > 1


def test_a_first_choice_that_runs_out_of_memory_costs_a_trial_and_is_not_regretted() -> None:
    measured_s = with_values(np.full(len(LAYOUTS), PREDICTED_S.min()), {0: np.nan})
    (search,) = judge(sheet(measured_s), num_seeds=1, num_given=0).searches
    assert search.trials["ours"].tolist() == [2]
    assert search.regret.tolist() == [0.0]


@pytest.mark.parametrize(("measured", "searches"), [(7, 0), (8, 1)])
def test_an_order_of_fewer_than_eight_measured_runs_is_not_judged(measured: int, searches: int) -> None:
    measured_s = np.where(np.arange(len(LAYOUTS)) < measured, PREDICTED_S, np.nan)
    assert len(judge(sheet(measured_s), num_seeds=1, num_given=0).searches) == searches


def test_a_sheet_whose_runs_are_all_twice_as_slow_is_right_after_a_few_of_them_are_known() -> None:
    slow = sheet(PREDICTED_S * 2.0)
    before, after = judge(slow, num_seeds=5, num_given=0), judge(slow, num_seeds=5, num_given=4)
    assert np.median(before.rows.absolute_errors) == pytest.approx(0.5)  # rounding
    assert np.median(after.rows.absolute_errors) < 0.1  # the prior still pulls towards the prediction


def test_rows_given_to_the_calibration_are_left_out_with_that_reason() -> None:
    judgement = judge(sheet(left_out={"odd": 2}), num_seeds=5, num_given=3)
    assert judgement.num_rows == len(LAYOUTS) - 3
    assert judgement.left_out == {"odd": 2, GIVEN: 3}


def test_the_seeds_are_shared_out_among_the_draws_of_a_calibration() -> None:
    searches = judge(sheet(), num_seeds=7, num_given=3).searches
    assert [search.trials["random"].size for search in searches] == [2, 2, 1, 1, 1]


def test_a_sheet_that_is_given_away_whole_has_nothing_left_to_judge() -> None:
    judgement = judge(sheet(), num_seeds=5, num_given=100)
    assert judgement.num_rows == 0
    assert judgement.searches == ()


PUBLIC_KEYS = [
    "name",
    "rows_used",
    "rows_left_out",
    "median_abs_error",
    "p90_abs_error",
    "mean_abs_error",
    "spearman",
    "oom_balanced_accuracy",
    "oom_let_through",
    "feasible_refused",
    "regret",
    "trials_to_2pct",
]
"""What readers of the JSON rely on, in this order; more may follow."""

FEW = LAYOUTS.take(slice(3))


def table(*sheets: Sheet, **left_out: int) -> Table:
    return Table(sheets=sheets, left_out=left_out)


def test_the_json_has_the_public_keys_for_all_and_for_every_sheet() -> None:
    document = json.loads(json.dumps(backtest(table(sheet()), num_seeds=2).to_dict()))
    assert list(document) == ["all", "sheets", "left_out_examples"]
    for score in (document["all"], *document["sheets"]):
        assert list(score)[: len(PUBLIC_KEYS)] == PUBLIC_KEYS
        assert list(score["trials_to_2pct"]) == ["ours", "tpe", "random"]
        assert all(list(count) == ["median", "p90"] for count in score["trials_to_2pct"].values())


def test_figures_without_meaning_are_none_and_the_others_are_there() -> None:
    few = backtest(table(sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=2).sheets[0]
    assert few.median_abs_error == pytest.approx(0.5)  # rounding
    assert few.feasible_refused == 0.0
    assert [few.spearman, few.regret, few.oom_let_through, few.oom_balanced_accuracy, few.best_refused] == [None] * 5
    assert {(count.median, count.p90) for count in few.trials_to_2pct.values()} == {(None, None)}


def test_errors_of_all_are_those_of_all_runs_not_of_all_sheets() -> None:
    report = backtest(table(sheet(), sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=1)
    assert [score.mean_abs_error for score in report.sheets] == pytest.approx([0.0, 0.5])  # rounding
    assert report.all.mean_abs_error == pytest.approx(0.5 * 3 / (len(LAYOUTS) + 3))  # rounding


def test_rank_figures_of_all_are_medians_over_the_sheets_that_have_them() -> None:
    reversed_s = PREDICTED_S[::-1].copy()
    report = backtest(table(sheet(), sheet(), sheet(reversed_s), sheet(PREDICTED_S[:3], FEW)), num_seeds=1)
    assert [score.spearman for score in report.sheets] == [pytest.approx(1.0)] * 2 + [pytest.approx(-1.0), None]
    assert report.all.spearman == pytest.approx(1.0)  # rounding
    assert report.all.regret == 0.0


def test_trials_of_all_are_counted_over_sheets_and_seeds() -> None:
    far = sheet(with_values(PREDICTED_S, {15: PREDICTED_S.min() / 2}))
    report = backtest(table(sheet(), sheet(), far), num_seeds=4)
    counts = [score.trials_to_2pct["ours"] for score in report.sheets]
    assert counts[2].median is not None
    assert counts[2].median > 1
    assert report.all.trials_to_2pct["ours"].median == 1.0
    assert report.all.trials_to_2pct["ours"].p90 == pytest.approx(counts[2].p90)


def test_trials_that_ran_out_of_memory_are_counted_by_proposer() -> None:
    """All layouts but the best run out of memory, which ours finds at once and chance does not."""
    only_best = np.where(PREDICTED_S.min() == PREDICTED_S, PREDICTED_S, np.nan)
    only_best[np.argsort(PREDICTED_S)[-8:]] = PREDICTED_S.max()  # enough that a search is judged
    report = backtest(table(sheet(only_best), sheet()), num_seeds=4)
    lost = report.sheets[0].lost_to_memory
    assert list(lost) == ["ours", "tpe", "random"]
    assert lost["ours"] == 0.0
    assert lost["random"] is not None
    assert 0 < lost["random"] < 1
    assert report.sheets[1].lost_to_memory == {"ours": 0.0, "tpe": 0.0, "random": 0.0}
    assert report.all.lost_to_memory["random"] is not None
    assert 0 < report.all.lost_to_memory["random"] < lost["random"]  # half of the sheets lose nothing


def test_memory_verdicts_are_counted_apart_for_runs_that_ended_and_runs_that_did_not() -> None:
    """Everything is predicted to fit, so all runs out of memory are let through and none that ended is refused."""
    score = backtest(table(sheet(with_values(PREDICTED_S, {1: np.nan}))), num_seeds=1).all
    assert (score.oom_let_through, score.feasible_refused, score.oom_balanced_accuracy) == (1.0, 0.0, 0.5)


def test_rows_left_out_of_all_are_those_of_the_sheets_and_of_none() -> None:
    report = backtest(table(sheet(left_out={"odd": 2}), sheet(left_out={"odd": 1, "even": 4}), odd=3), num_seeds=1)
    assert report.all.rows_left_out == {"odd": 6, "even": 4}
    assert report.all.rows_used == 2 * len(LAYOUTS)


def test_a_table_without_a_usable_row_has_a_report_of_nothing() -> None:
    score = backtest(table(odd=3)).all
    assert (score.rows_used, score.rows_left_out, score.median_abs_error) == (0, {"odd": 3}, None)


def test_every_figure_and_every_required_column_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/backtest.md").read_text()
    names = [*(field.name for field in fields(Score)), *REQUIRED_COLUMNS]
    assert [name for name in names if f"`{name}`" not in text] == []
