from __future__ import annotations

import numpy as np

from autotuner.search.fronts.dominance import dominators, non_dominated


def test_a_row_stays_unless_another_is_as_good_in_everything_and_better_in_something() -> None:
    values = np.array([[1.0, 3.0], [2.0, 2.0], [1.0, 2.0], [3.0, 1.0], [0.5, 0.5]])
    assert non_dominated(values).tolist() == [True, True, False, True, False]


def test_equal_rows_stay_together() -> None:
    values = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 0.5]])
    assert non_dominated(values).tolist() == [True, True, False]


def test_of_no_rows_none_stays() -> None:
    assert non_dominated(np.empty((0, 3))).tolist() == []


def test_a_row_stays_exactly_where_nothing_dominates_it() -> None:
    values = np.random.default_rng(0).integers(0, 6, (200, 3)).astype(float)  # with many ties
    stays = non_dominated(values)
    assert stays.any()
    assert [not dominators(values, row).size for row in range(200)] == stays.tolist()
