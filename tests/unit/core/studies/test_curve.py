from __future__ import annotations

import pytest

from autotuner.core.studies.curve import LossCurve
from tests.studies import curve


def test_losses_are_averaged_over_as_many_sequences_whatever_the_batch() -> None:
    small, large = curve(6.0, 4.0, 2.0, batch=16), curve(6.0, 4.0, 2.0, batch=32)
    assert small.smoothed(32) == (6.0, 5.0, 3.0)
    assert large.smoothed(32) == (6.0, 4.0, 2.0)


def test_the_target_is_reached_by_a_whole_window_alone() -> None:
    """The first loss lies below the target by luck, and one batch says less than two."""
    lucky = curve(4.9, 6.0, 5.1, 4.7, 4.6, batch=16)
    assert lucky.steps_to(5.0, 32) == 4
    assert lucky.steps_to(4.0, 32) is None


def test_the_first_step_is_no_measure_of_the_others() -> None:
    times = (9.0, 1.0, 1.2, 1.1)
    assert LossCurve(losses=(1.0,) * 4, step_times_s=times, global_batch_size=4).step_time_s == pytest.approx(1.1)
    assert curve().step_time_s == 0.0
    assert curve(5.0, step_time_s=3.0).step_time_s == 3.0  # before there is another


def test_samples_are_counted_in_sequences() -> None:
    assert curve(5.0, 4.0, batch=16).with_step(3.0, 1.0).num_samples == 48
