"""How much errors are believed of which some are of runs that went wrong."""

from __future__ import annotations

import numpy as np

from autotuner.search.sampler.robust import believed_noise

OWN = np.full(9, 0.03**2)
COMMON = np.full((9, 9), 0.15**2)


def believed_mean(errors: list[float]) -> float:
    """What all runs have in common, after these errors."""
    noise = believed_noise(COMMON, np.array(errors), OWN)
    return float(COMMON[0] @ np.linalg.solve(COMMON + np.diag(noise), np.array(errors)))


def test_a_run_that_went_wrong_counts_less_than_the_others() -> None:
    noise = believed_noise(COMMON, np.array([0.1] * 8 + [1.5]), OWN)
    assert noise[-1] > 100 * noise[0]


def test_four_of_nine_runs_that_went_wrong_hardly_move_what_is_believed() -> None:
    assert abs(believed_mean([0.1] * 5 + [1.5] * 4) - 0.1) < 0.03


def test_errors_of_usual_size_count_about_as_their_own_variance_says() -> None:
    noise = believed_noise(COMMON, np.array([0.07, 0.1, 0.13] * 3), OWN)
    assert (noise > OWN / 2).all()
    assert (noise < 2 * OWN).all()


def test_a_run_that_was_much_faster_is_believed_where_faults_only_slow_down() -> None:
    errors = np.array([0.1] * 7 + [-1.0, 1.5])
    noise = believed_noise(COMMON, errors, OWN, only_above=True)
    assert noise[-2] < 2 * OWN[0]
    assert noise[-1] > 100 * OWN[0]
