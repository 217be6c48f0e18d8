from __future__ import annotations

import numpy as np

from autotuner.search.correction import correction

CODES = np.array([[1, 0], [1, 1], [2, 0], [2, 1]])


def test_without_measurements_every_prediction_stands() -> None:
    assert correction(CODES, {}).tolist() == [1.0] * 4


def test_one_measurement_scales_all_predictions_alike() -> None:
    factors = correction(CODES, {0: float(np.log(2.0))})
    assert np.allclose(factors, 2.0)


def test_what_a_value_showed_carries_over_to_untried_rows_that_share_it() -> None:
    factors = correction(CODES, {0: 0.0, 2: 1.0})
    assert factors[3] > factors[1]


def test_a_field_that_never_varied_explains_nothing() -> None:
    factors = correction(CODES, {0: 0.0, 2: 1.0})
    assert factors[0] == factors[1]
    assert factors[2] == factors[3]


def test_many_agreeing_measurements_are_believed() -> None:
    codes = np.repeat(CODES, 20, axis=0)
    slow = codes[:, 0] == 2
    factors = correction(codes, {row: 1.0 if slow[row] else 0.0 for row in range(len(codes))})
    # 40 trials per value against a prior of half a trial leave about 1 % of the difference unexplained
    assert np.allclose(np.log(factors), slow, atol=0.02)
