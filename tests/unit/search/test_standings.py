from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.ports import RankedTime
from autotuner.search.standings import standings


def times(*step_times_s: float, interval: float = 0.0, floor: float | None = None) -> list[RankedTime]:
    """Ranked trials a, b, c ... with intervals that are this share of their step times."""
    return [
        RankedTime(trial_id=name, step_time_s=time, step_time_interval_s=interval * time, noise_floor=floor)
        for name, time in zip("abcdef", step_times_s, strict=False)
    ]


def test_without_trials_there_are_no_standings() -> None:
    assert standings([]) == {}


def test_a_trial_alone_is_surely_the_best() -> None:
    (alone,) = standings(times(1.0, interval=0.1)).values()
    assert (alone.probability_best, alone.tied_with_best) == (1.0, True)


def test_equal_times_share_the_probability_of_being_the_best() -> None:
    for standing in standings(times(1.0, 1.0, 1.0, interval=0.05)).values():
        assert standing.probability_best == pytest.approx(1 / 3)  # by symmetry; summed in another order
        assert standing.tied_with_best


def test_step_times_whose_intervals_overlap_widely_are_tied_and_far_ones_are_not() -> None:
    found = standings(times(0.259, 0.292, 0.6, interval=0.13))
    assert found["b"].tied_with_best
    assert 0.05 < found["b"].probability_best < found["a"].probability_best
    assert not found["c"].tied_with_best
    assert found["c"].probability_best < 1e-6


def test_the_noise_floor_of_one_trial_ties_all() -> None:
    usual = times(1.00, 1.05)
    noisy = [*times(1.00, floor=0.05), usual[1]]
    assert not standings(usual)["b"].tied_with_best
    assert standings(noisy)["b"].tied_with_best


def test_one_pair_of_runs_that_agreed_by_luck_does_not_make_step_times_exact() -> None:
    lucky = [*times(1.00, floor=0.0), *times(1.00, 1.01)[1:]]
    assert standings(lucky)["b"].tied_with_best


def test_what_runs_of_one_layout_differ_by_ties_all() -> None:
    usual = times(1.00, 1.05)
    noisy = [replace(usual[0], repeated_s=(1.06, 0.95, 1.05, 0.96)), usual[1]]
    assert standings(noisy)["b"].tied_with_best


def test_a_layout_is_known_by_all_of_its_runs_and_the_better_the_more_there_are() -> None:
    lucky = [replace(one, repeated_s=(1.05,) * 5) if one.trial_id == "a" else one for one in times(1.00, 1.02)]
    assert standings(lucky)["b"].probability_best > 0.8
    few, many = ([replace(one, repeated_s=(one.step_time_s,) * num) for one in times(1.0, 1.01)] for num in (1, 9))
    assert standings(few)["b"].tied_with_best
    assert not standings(many)["b"].tied_with_best


def test_probabilities_agree_with_drawn_step_times() -> None:
    deviation = np.hypot(0.05 / 1.96, 0.01)  # of the medians, and of equal runs
    drawn = np.random.default_rng(7).normal(np.log([1.0, 1.02, 1.1]), deviation, size=(200_000, 3))
    shares = np.bincount(drawn.argmin(axis=1), minlength=3) / len(drawn)
    found = [standing.probability_best for standing in standings(times(1.0, 1.02, 1.1, interval=0.05)).values()]
    # three standard errors of a share of 200,000 draws, 0.0034 at most
    assert found == pytest.approx(shares, abs=0.0034)


def test_the_value_at_the_mean_step_time_stands_beside_it() -> None:
    (found,) = standings([replace(times(1.0)[0], repeated_s=(4.0,), worth_per_step=6.0)]).values()
    assert (found.step_time_s, found.value) == pytest.approx((2.0, 3.0))
