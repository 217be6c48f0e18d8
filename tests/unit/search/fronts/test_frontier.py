from __future__ import annotations

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume  # private: an oracle of tests alone

from autotuner.search.fronts.frontier import Frontier, reference_below


def test_two_points_dominate_their_rectangles_without_what_they_share() -> None:
    frontier = Frontier.of(np.array([[1.0, 3.0], [2.0, 1.0]]), np.zeros(2))
    assert frontier.volume == pytest.approx(3.0 + 2.0 - 1.0)


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


def test_points_below_the_reference_in_something_count_for_nothing() -> None:
    points = np.array([[5.0, 0.5], [2.0, 2.0]])
    assert Frontier.of(points, np.ones(2)).volume == pytest.approx(1.0)


def test_without_points_everything_above_the_reference_is_gained() -> None:
    frontier = Frontier.of(np.empty((0, 2)), np.ones(2))
    assert frontier.volume == 0.0
    assert frontier.gains(np.array([[3.0, 2.0]])).tolist() == [2.0]


def test_three_dimensions_take_about_twice_as_many_boxes_as_points() -> None:
    points = np.abs(np.random.default_rng(0).normal(size=(40, 3)))
    points /= np.linalg.norm(points, axis=1)[:, None]
    assert len(Frontier.of(points, np.zeros(3)).boxes.low) == 2 * 40 + 1


def test_the_reference_lies_a_tenth_of_the_fronts_range_below_its_worst() -> None:
    points = np.array([[1.0, 3.0], [2.0, 1.0], [0.0, 0.0]])  # the last is on no front
    assert reference_below(points).tolist() == pytest.approx([0.9, 0.8])


def test_a_front_that_is_equal_in_something_still_has_a_reference_below_it() -> None:
    assert (reference_below(np.array([[1.0, 2.0]])) < [1.0, 2.0]).all()
