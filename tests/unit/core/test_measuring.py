"""Tests of ``autotuner.core.measuring``."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from itertools import chain, cycle, repeat

import pytest

from autotuner.core.measuring import (
    Pace,
    averages_in,
    half_interval_s,
    is_stationary,
    levelled,
    mean_over_period,
    shows_average,
)
from autotuner.core.trial_spec import TrialSettings


def test_the_average_lies_in_the_last_step_of_each_period() -> None:
    assert [step for step in range(9) if averages_in(step, 4)] == [3, 7]
    assert not shows_average([4, 5, 6], 4)
    assert shows_average([4, 5, 6, 7], 4)


def test_each_step_bears_its_part_of_an_average_wherever_the_steps_begin() -> None:
    found = levelled([2, 3, 4], [1.0, 5.0, 1.0], 4)
    assert found == [2.0, 2.0]
    assert statistics.median(found) == mean_over_period([2, 3, 4], [1.0, 5.0, 1.0], 4)


@pytest.mark.parametrize("period", [1, 8])
def test_steps_that_are_alike_or_without_an_average_stay_as_they_are(period: int) -> None:
    assert levelled([0, 1, 2], [1.0, 2.0, 3.0], period) == [1.0, 2.0, 3.0]
    assert mean_over_period([0, 1, 2], [1.0, 2.0, 3.0], period) == 2.0


FIRST_S = 9.0
NOISE_S = (1.0, 1.3, 0.8, 1.1, 0.9, 1.2)
"""Twenty per cent of scatter: no median of it is known to 1 % after forty steps."""


def run(settings: TrialSettings, later_s: Iterator[float], *, period: int = 1) -> tuple[int, int]:
    """Steps of the warm-up and of the measurement."""
    pace, num_steps = Pace(settings, period=period), 0
    for step_time_s in chain([FIRST_S], later_s):
        if pace.is_done:
            break
        pace.add(step_time_s)
        num_steps += 1
    return pace.num_warmup_steps, num_steps - pace.num_warmup_steps


def test_equal_steps_are_warm_after_three_and_known_after_six_more() -> None:
    assert run(TrialSettings(), repeat(0.1)) == (3, 6)


def test_a_step_time_that_falls_is_warmed_up_until_it_stays() -> None:
    num_warmup, _ = run(TrialSettings(), chain([0.4, 0.2, 0.15, 0.125], repeat(0.1)))
    assert num_warmup > 5


def test_a_step_time_that_never_settles_is_measured_after_the_most_warm_up_steps() -> None:
    falling = (100.0 - step for step in range(60))
    settings = TrialSettings(max_warmup_steps=20, max_measured_steps=40, measuring_budget_s=1e6, target_interval=0.0)
    assert run(settings, falling) == (20, 40)


def test_noise_is_measured_until_the_most_steps() -> None:
    _, num_measured = run(TrialSettings(max_measured_steps=40, measuring_budget_s=1e6), cycle(NOISE_S))
    assert num_measured == 40


def test_a_wider_target_needs_fewer_steps() -> None:
    _, strict = run(TrialSettings(target_interval=0.05, max_measured_steps=500, measuring_budget_s=1e6), cycle(NOISE_S))
    _, lenient = run(TrialSettings(target_interval=0.2, max_measured_steps=500, measuring_budget_s=1e6), cycle(NOISE_S))
    assert lenient < strict


def test_steps_are_measured_until_one_has_averaged_parameters_however_few_are_asked_for() -> None:
    settings = TrialSettings(measured_steps=1, max_measured_steps=2)
    assert run(settings, repeat(0.1), period=16) == (3, 13)


def test_an_average_now_and_then_is_no_noise() -> None:
    averaging = (0.5 if step % 4 == 3 else 0.1 for step in range(1, 400))
    six_plain_ones = (4, 7)
    assert run(TrialSettings(warmup_steps=4, max_warmup_steps=4), averaging, period=4) == six_plain_ones


def test_the_fewest_steps_run_whatever_they_cost() -> None:
    settings = TrialSettings(warmup_steps=4, measured_steps=7, measuring_budget_s=0.001)
    assert run(settings, cycle(NOISE_S)) == (4, 7)


def test_the_fewest_steps_win_over_the_most() -> None:
    settings = TrialSettings(warmup_steps=4, max_warmup_steps=1, measured_steps=50, max_measured_steps=40)
    assert run(settings, repeat(1.0)) == (4, 50)


def test_the_budget_ends_the_measurement_between_the_fewest_and_the_most_steps() -> None:
    _, num_measured = run(TrialSettings(measuring_budget_s=10.0, max_warmup_steps=2), cycle(NOISE_S))
    assert num_measured == 10  # seconds, at a second each


def test_without_warm_up_the_first_step_counts() -> None:
    settings = TrialSettings(warmup_steps=0, max_warmup_steps=0, measured_steps=2, max_measured_steps=2)
    assert run(settings, repeat(1.0)) == (0, 2)


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


@pytest.mark.parametrize("num_steps", range(6))
def test_fewer_than_six_steps_do_not_bound_a_median_with_95_percent(num_steps: int) -> None:
    assert half_interval_s(list(range(num_steps))) is None


@pytest.mark.parametrize(
    ("num_steps", "num_outside"),
    [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (25, 7)],  # Conover (1999), table A3 at p = 0.5
)
def test_the_interval_runs_between_the_order_statistics_of_the_binomial_table(num_steps: int, num_outside: int) -> None:
    times_s = random.Random(0).sample(range(num_steps), num_steps)
    assert half_interval_s(times_s) == (num_steps - 1 - 2 * num_outside) / 2


def test_one_disturbed_step_does_not_widen_the_interval_of_ten() -> None:
    quiet = [1.0 + 0.001 * n for n in range(10)]
    assert half_interval_s([*quiet[:-1], 50.0]) == half_interval_s(quiet)


def test_the_interval_holds_the_median_of_skewed_steps_as_often_as_it_says() -> None:
    draw, true_median, held = random.Random(1), 0.6931471805599453, 0  # ln 2, of the exponential distribution
    for _ in range(2000):
        times_s = [draw.expovariate(1.0) for _ in range(12)]
        half = half_interval_s(times_s)
        assert half is not None
        ordered = sorted(times_s)
        held += ordered[2] <= true_median <= ordered[9]
        assert half == pytest.approx((ordered[9] - ordered[2]) / 2)
    # 12 steps without 2 at each end hold it in 96.1 % of cases; four standard errors of 2,000 draws are 1.7 %
    assert held / 2000 == pytest.approx(0.961, abs=0.017)
