from __future__ import annotations

import pytest

from trials.measurement.stationary import is_stationary

STEPS = {
    "nothing but the first step": ([9.0], False),
    "one step after the first": ([9.0, 1.0], False),
    "two equal steps of a quiet device": ([9.0, 1.0, 1.005], True),
    "two steps that differ": ([9.0, 1.2, 1.0], False),
    "a fall that goes on": ([9.0, 3.0, 2.0, 1.5, 1.25, 1.125, 1.06], False),
    "a fall that has ended": ([9.0, 3.0, 2.0, 1.0, 1.1, 0.98, 1.05, 1.02, 1.1], True),
    "a rise, as of a device that heats up": ([9.0, 1.0, 1.01, 1.02, 1.2, 1.22, 1.24], False),
    "noise without a trend": ([9.0, 1.3, 0.9, 1.1, 1.2, 1.0, 1.4], True),
    "noise, and one step that was disturbed": ([9.0, 1.0, 1.05, 1.02, 7.0, 1.01, 1.04], True),
    "a fall hidden by nothing but its own length": ([9.0, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5], False),
}


@pytest.mark.parametrize(("times_s", "settled"), STEPS.values(), ids=STEPS)
def test_steps_are_stationary_when_two_windows_cannot_be_told_apart(times_s: list[float], settled: bool) -> None:
    assert is_stationary(times_s, resolution=0.01) is settled


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_a_geometric_fall_is_a_trend_until_it_is_below_the_resolution(ratio: float) -> None:
    times_s = [9.0] + [1.0 + ratio**step for step in range(40)]
    settled = next(n for n in range(2, 41) if is_stationary(times_s[:n], resolution=0.01))
    assert times_s[settled - 2] - times_s[settled - 1] <= 0.01 * times_s[settled - 2]
