from __future__ import annotations

import math

import numpy as np
import pytest

from autotuner.search.sampler.acquisition import log_expected_gain, log_probability


def gain(mean: float, deviation: float) -> float:
    return float(np.exp(log_expected_gain(np.array([mean]), np.array([deviation])))[0])


def test_the_gain_of_a_certain_improvement_is_the_improvement() -> None:
    assert gain(0.3, 0.0) == pytest.approx(0.3)


def test_an_even_chance_gains_the_mean_of_half_a_normal_distribution() -> None:
    assert gain(0.0, 0.2) == pytest.approx(0.2 / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("u", [-3.0, -1.0, 0.5, 2.0])
def test_the_gain_is_the_expected_positive_part_of_a_normal_variable(u: float) -> None:
    points = np.linspace(-10, 10, 400_001)
    density = np.exp(-((points - u) ** 2) / 2) / math.sqrt(2 * math.pi)
    expected = float((np.maximum(points, 0) * density).sum() * (points[1] - points[0]))
    assert gain(0.1 * u, 0.1) == pytest.approx(0.1 * expected, rel=1e-5)  # the table's step squared


def test_the_larger_of_two_hopeless_means_still_gains_more() -> None:
    means = -np.linspace(1.0, 60.0, 500)
    assert (np.diff(log_expected_gain(means, np.ones(500))) < 0).all()


def test_the_tails_continue_the_table() -> None:
    below, above = np.array([-12.0 - 1e-9, -12.0 + 1e-9]), np.array([8.0 - 1e-9, 8.0 + 1e-9])
    # the left tail leaves out terms of 3 / u^2
    assert np.diff(log_expected_gain(below, np.ones(2)))[0] == pytest.approx(0.0, abs=3 / 144)
    assert np.diff(log_expected_gain(above, np.ones(2)))[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("u", [-2.0, -0.5, 0.0, 1.0, 3.0])
def test_probabilities_are_normal_within_one_percent(u: float) -> None:
    probability = math.exp(log_probability(np.array([0.1 * u]), np.array([0.1]))[0])
    assert probability == pytest.approx(math.erfc(-u / math.sqrt(2)) / 2, abs=0.0096)  # the logistic curve's worst


def test_a_probability_that_rounds_to_nothing_still_has_a_logarithm() -> None:
    assert np.isfinite(log_probability(np.array([-1e3]), np.array([0.1])))[0]
