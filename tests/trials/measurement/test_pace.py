from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, repeat

from autotuner.domain.trial import TrialSettings
from trials.measurement.pace import Pace

FIRST_S = 9.0
NOISE_S = (1.0, 1.3, 0.8, 1.1, 0.9, 1.2)
"""Twenty per cent of scatter: no median of it is known to 1 % after forty steps."""


def run(settings: TrialSettings, later_s: Iterator[float]) -> tuple[int, int]:
    """Steps of the warm-up and of the measurement."""
    pace, num_steps = Pace(settings), 0
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
