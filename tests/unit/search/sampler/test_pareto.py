from __future__ import annotations

import math

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume  # private: an oracle of tests alone

from autotuner.core.columns import Floats
from autotuner.search.sampler.pareto import (
    Frontier,
    Outcomes,
    dominators,
    log_expected_volume_gain,
    non_dominated,
    reference_below,
    steps_to_enter,
)


# ---------------------------------------------------------------- dominance
def test_a_row_stays_exactly_where_nothing_is_as_good_in_everything_and_better_in_something() -> None:
    values = np.array([[1.0, 3.0], [2.0, 2.0], [1.0, 2.0], [3.0, 1.0], [0.5, 0.5]])
    assert non_dominated(values).tolist() == [True, True, False, True, False]
    values = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 0.5]])
    assert non_dominated(values).tolist() == [True, True, False]
    assert non_dominated(np.empty((0, 3))).tolist() == []
    values = np.random.default_rng(0).integers(0, 6, (200, 3)).astype(float)  # with many ties
    stays = non_dominated(values)
    assert stays.any()
    assert [not dominators(values, row).size for row in range(200)] == stays.tolist()


# ---------------------------------------------------------------- expected gain
def outcomes(log_value_per_step: Floats, is_rate: list[bool], mean: float = 0.0, deviation: float = 0.3) -> Outcomes:
    rows = len(log_value_per_step)
    return Outcomes(
        log_value_per_step=log_value_per_step,
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


def test_a_row_enters_the_front_where_nothing_dominates_it_and_gains_what_is_certain() -> None:
    rows = outcomes(np.array([[0.5, 0.5], [0.1, 0.3], [0.5, 1.2]]), [True, False])
    # Two must beat the point in the middle; the third, best in what is no rate, only the reference.
    assert steps_to_enter(rows, FRONT) == pytest.approx([-0.1, -0.5, 0.5])
    rows = outcomes(np.array([[0.9, 0.7]]), [True, True], deviation=0.0)
    assert np.exp(log_expected_volume_gain(rows, FRONT)) == pytest.approx(
        FRONT.gains(rows.expected), rel=1e-4
    )  # of 16 nodes


def test_a_row_without_any_hope_has_no_gain_and_the_less_hopeless_gains_more() -> None:
    rows = outcomes(np.array([[5.0, -0.1]]), [True, False])
    assert log_expected_volume_gain(rows, FRONT).tolist() == [-math.inf]
    gains = log_expected_volume_gain(outcomes(np.linspace([-9.0, 0.5], [-2.0, 0.5], 200), [True, False]), FRONT)
    assert np.isfinite(gains).all()
    assert (np.diff(gains) > 0).all()
    rows = outcomes(np.array([[-9.0, 0.5]]), [True, False], deviation=1e-8)
    assert log_expected_volume_gain(rows, FRONT)[0] < -1e9


# ---------------------------------------------------------------- frontier
def test_points_count_above_a_reference_that_lies_below_their_front() -> None:
    frontier = Frontier.of(np.array([[1.0, 3.0], [2.0, 1.0]]), np.zeros(2))
    assert frontier.volume == pytest.approx(3.0 + 2.0 - 1.0)
    points = np.array([[5.0, 0.5], [2.0, 2.0]])
    assert Frontier.of(points, np.ones(2)).volume == pytest.approx(1.0)
    frontier = Frontier.of(np.empty((0, 2)), np.ones(2))
    assert frontier.volume == 0.0
    assert frontier.gains(np.array([[3.0, 2.0]])).tolist() == [2.0]
    points = np.array([[1.0, 3.0], [2.0, 1.0], [0.0, 0.0]])  # the last is on no front
    assert reference_below(points).tolist() == pytest.approx([0.9, 0.8])
    assert (reference_below(np.array([[1.0, 2.0]])) < [1.0, 2.0]).all()


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_the_hypervolume_is_the_one_of_optuna(dimensions: int) -> None:
    generator = np.random.default_rng(dimensions)
    for num_points in (1, 2, 7, 25):
        points = generator.integers(1, 9, (num_points, dimensions)).astype(float)  # with ties in every dimension
        expected = compute_hypervolume(-points, np.zeros(dimensions))
        assert Frontier.of(points, np.zeros(dimensions)).volume == pytest.approx(expected)


@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_a_points_gain_is_what_the_hypervolume_rises_by_with_it(dimensions: int) -> None:
    generator = np.random.default_rng(dimensions)
    points, more = generator.random((12, dimensions)), 1.2 * generator.random((20, dimensions))
    frontier = Frontier.of(points, np.zeros(dimensions))
    with_each = [Frontier.of(np.vstack([points, one]), np.zeros(dimensions)).volume for one in more]
    assert frontier.gains(more) == pytest.approx(np.array(with_each) - frontier.volume, abs=1e-12)  # rounding


def test_three_dimensions_take_about_twice_as_many_boxes_as_points() -> None:
    points = np.abs(np.random.default_rng(0).normal(size=(40, 3)))
    points /= np.linalg.norm(points, axis=1)[:, None]
    assert len(Frontier.of(points, np.zeros(3)).boxes.low) == 2 * 40 + 1
