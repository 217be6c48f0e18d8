from __future__ import annotations

import numpy as np
import pytest

from autotuner.backtest.figures import mean, quantile, share, spearman

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
