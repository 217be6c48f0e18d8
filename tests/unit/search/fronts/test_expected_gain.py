from __future__ import annotations

import math

import numpy as np
import pytest

from autotuner.core.columns import Floats
from autotuner.search.fronts.expected_gain import Outcomes, log_expected_volume_gain, steps_to_enter
from autotuner.search.fronts.frontier import Frontier


def outcomes(log_worth: Floats, is_rate: list[bool], mean: float = 0.0, deviation: float = 0.3) -> Outcomes:
    rows = len(log_worth)
    return Outcomes(
        log_worth=log_worth,
        is_rate=np.array(is_rate),
        mean=np.full(rows, mean),
        deviation=np.full(rows, deviation),
    )


FRONT = Frontier.of(np.array([[1.0, 0.2], [0.6, 0.6], [0.2, 1.0]]), np.zeros(2))


@pytest.mark.parametrize("is_rate", [[True, True], [True, False]])
def test_the_expected_gain_is_the_mean_gain_of_the_step_times_that_may_be(is_rate: list[bool]) -> None:
    rows = outcomes(np.random.default_rng(1).random((40, 2)), is_rate, mean=-0.1)
    quantiles = np.linspace(-8, 8, 20_001)
    density = np.exp(-(quantiles**2) / 2) / math.sqrt(2 * math.pi) * (quantiles[1] - quantiles[0])
    gains = FRONT.gains(rows.at(rows.mean[:, None] + rows.deviation[:, None] * quantiles))
    # The corners of boxes lie between the nodes: 1 % of what is worth a trial.
    assert np.exp(log_expected_volume_gain(rows, FRONT)) == pytest.approx(gains @ density, rel=0.01)


def test_with_a_certain_step_time_it_is_the_gain() -> None:
    rows = outcomes(np.array([[0.9, 0.7]]), [True, True], deviation=0.0)
    assert np.exp(log_expected_volume_gain(rows, FRONT)) == pytest.approx(
        FRONT.gains(rows.expected), rel=1e-4
    )  # of 16 nodes


def test_a_row_enters_the_front_where_it_is_no_longer_dominated() -> None:
    rows = outcomes(np.array([[0.5, 0.5], [0.1, 0.3], [0.5, 1.2]]), [True, False])
    # Two must beat the point in the middle; the third, best in what is no rate, only the reference.
    assert steps_to_enter(rows, FRONT) == pytest.approx([-0.1, -0.5, 0.5])


def test_no_speed_helps_a_row_that_is_below_the_reference_in_what_is_no_rate() -> None:
    rows = outcomes(np.array([[5.0, -0.1]]), [True, False])
    assert log_expected_volume_gain(rows, FRONT).tolist() == [-math.inf]


def test_the_less_hopeless_of_two_rows_still_gains_more() -> None:
    gains = log_expected_volume_gain(outcomes(np.linspace([-9.0, 0.5], [-2.0, 0.5], 200), [True, False]), FRONT)
    assert np.isfinite(gains).all()
    assert (np.diff(gains) > 0).all()


def test_what_lies_beyond_any_hope_is_no_error() -> None:
    rows = outcomes(np.array([[-9.0, 0.5]]), [True, False], deviation=1e-8)
    assert log_expected_volume_gain(rows, FRONT)[0] < -1e9
