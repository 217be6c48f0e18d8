"""How full the fullest of many bins is."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.communication.collisions import unevenness


@pytest.mark.parametrize(("num_balls", "num_bins"), [(8, 16), (32, 32), (64, 16), (512, 32), (4096, 64)])
def test_the_fullest_bin_holds_as_many_balls_as_when_they_are_thrown(num_balls: int, num_bins: int) -> None:
    thrown = np.random.default_rng(0).integers(num_bins, size=(4000, num_balls))
    offsets = thrown + num_bins * np.arange(4000)[:, None]
    fullest = np.bincount(offsets.ravel(), minlength=4000 * num_bins).reshape(4000, num_bins).max(axis=1).mean()
    found = float(unevenness(np.array([float(num_balls)]), num_bins)[0]) * num_balls / num_bins
    # independent bins hold now more, now fewer balls in all, which matters where there are few: 6 % of 8 balls
    assert found == pytest.approx(fullest, rel=0.08)


def test_very_many_balls_lie_as_evenly_by_both_formulas() -> None:
    around = unevenness(np.array([16 * 0.99e4, 16 * 1.01e4]), 16)
    assert around[0] - 1 == pytest.approx(around[1] - 1, rel=0.5)  # a bound for many bins beside the tail for 16
    assert around[1] < 1.03


def test_nothing_is_uneven_in_a_single_bin_or_without_balls() -> None:
    assert unevenness(np.array([0.0, 5.0]), 1).tolist() == [1, 1]
    assert unevenness(np.array([0.0]), 8).tolist() == [1]
