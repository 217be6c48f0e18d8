"""What the bench of the demonstration's job says of figures, and of the ones that are kept with it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.cpu_sweep import judged, judgements, noise_floor, undisturbed


def test_predictions_are_judged_by_their_errors_their_order_and_their_first_choice() -> None:
    found = judged(np.array([1.0, 2.2, 0.9]), np.array([1.0, 2.0, 1.5]))
    assert found.median_error == pytest.approx(0.1)
    assert found.spearman == pytest.approx(0.5)  # of three, the first two are the other way round
    assert found.behind == pytest.approx(0.5)


def test_the_noise_floor_is_what_the_best_of_half_the_runs_says_of_the_other_half() -> None:
    runs = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.2], "c": [3.0, 3.0], "once": [1.0]}
    found = noise_floor(runs)
    assert found is not None
    assert found.num_layouts == 3
    assert found.median_error == pytest.approx(1 - 2.0 / 2.2)
    assert found.spearman == pytest.approx(1.0)


def test_layouts_that_ran_once_tell_no_noise() -> None:
    assert noise_floor({"a": [1.0], "b": [2.0]}) is None


def test_runs_in_which_others_used_the_machine_do_not_count() -> None:
    runs = [{"layout": "a", "step_s": 1.0, "foreign": 0.01}, {"layout": "a", "step_s": 2.0, "foreign": 0.2}]
    assert undisturbed(runs) == {"a": [1.0]}


@pytest.mark.parametrize("num_cores", [2, 4])
def test_the_kept_profile_ranks_the_kept_runs(num_cores: int) -> None:
    """Laws may change and constants be measured anew; what is kept must go on being predicted by what is kept."""
    found = dict(judgements(num_cores))["profile"]
    assert found is not None
    assert found.spearman > 0.85  # equal runs on this machine agree to 0.9
    assert found.median_error < 0.2  # and differ by more than 10 % in the median
