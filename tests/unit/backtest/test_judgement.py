from __future__ import annotations

import numpy as np
import pytest

from autotuner.backtest.judgement import GIVEN, Rows, judge
from autotuner.backtest.proposers import PROPOSERS
from tests.unit.backtest.sheets import LAYOUTS, PREDICTED_S, sheet, with_values


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
