"""The sequential test that a series of times is held to."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from trials.pipelines.change import LEARNED_STEPS, ChangeTest, Healthy, threshold_for

SHIFT_S = 0.010
THRESHOLD = threshold_for(1e-4, 26)


def noise(seed: int, scale_s: float) -> Iterator[float]:
    source = random.Random(seed)
    while True:
        yield 0.001 + abs(source.gauss(0.0, scale_s))


def learned(scale_s: float = 0.0005, *, level_s: float = 0.0, seed: int = 0) -> ChangeTest:
    test = ChangeTest(THRESHOLD, level_s=level_s)
    for value_s, _ in zip(noise(seed, scale_s), range(LEARNED_STEPS), strict=False):
        test.add(level_s + value_s, SHIFT_S)
    return test


def test_the_threshold_is_the_logarithm_of_the_steps_per_alarm_of_one_test() -> None:
    assert threshold_for(1e-4, 1) == pytest.approx(math.log(10_000))


def test_a_healthy_level_is_a_median_of_the_last_steps_so_that_it_follows_clocks_that_drift() -> None:
    healthy = Healthy()
    for step in range(100):
        healthy.add(step * 1e-5)
    assert healthy.level_s == pytest.approx(83.5e-5)


@pytest.mark.parametrize("delay_s", [SHIFT_S, 0.06, 30.0])
def test_a_delay_that_matters_is_found_in_the_second_step_and_so_is_its_end(delay_s: float) -> None:
    test = learned()
    assert [test.add(delay_s + 0.001, SHIFT_S) for _ in range(3)] == [False, True, False]
    assert test.level_s == pytest.approx(delay_s, abs=0.0005)  # the noise is half a millisecond
    assert [test.add(0.001, SHIFT_S) for _ in range(3)] == [False, True, False]
    assert test.level_s == 0.0


def test_a_single_step_never_counts_however_far_it_lies() -> None:
    test = learned()
    assert not any(test.add(value_s, SHIFT_S) for value_s in (60.0, 0.001) * 20)


def test_less_than_half_of_what_matters_is_never_found() -> None:
    test = learned(scale_s=0.0001)
    assert not any(test.add(0.001 + 0.45 * SHIFT_S, SHIFT_S) for _ in range(200))


def test_a_level_that_rises_and_falls_in_steps_is_followed_without_flapping() -> None:
    test = learned()
    found = [test.add(0.001 + level_s, SHIFT_S) for level_s in [0.03] * 10 + [0.06] * 10 + [0.03] * 10 + [0.0] * 10]
    assert [step for step, is_changed in enumerate(found) if is_changed] == [1, 11, 21, 31]


def test_a_disturbed_step_before_a_delay_does_not_make_it_look_shorter() -> None:
    test = learned()
    assert [test.add(value_s, SHIFT_S) for value_s in (0.013, 0.046, 0.046)] == [False, False, True]
    assert test.level_s == pytest.approx(0.045, abs=0.0005)


def test_a_delay_that_was_known_at_the_start_ends_as_any_other() -> None:
    test = learned(level_s=0.05)
    assert not any(test.add(0.051, SHIFT_S) for _ in range(10))
    assert [test.add(0.001, SHIFT_S) for _ in range(2)] == [False, True]
    assert test.level_s == 0.0


def test_what_has_another_cause_is_no_evidence() -> None:
    test = learned()
    assert not any(test.add(0.041, SHIFT_S, doubt_s=0.04) for _ in range(20))


@pytest.mark.parametrize("scale_s", [0.0001, 0.001, 0.005])
def test_normal_noise_raises_no_alarm_in_ten_thousand_steps(scale_s: float) -> None:
    test = ChangeTest(THRESHOLD)
    steps = noise(1, scale_s)
    assert not any(test.add(next(steps), SHIFT_S) for _ in range(10_000))


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_outliers_that_come_often_soon_count_for_less(share: float) -> None:
    source, steps = random.Random(3), noise(3, 0.001)
    test = ChangeTest(THRESHOLD)
    late = (next(steps) + (0.5 if source.random() < share else 0.0) for _ in range(5_000))
    assert not any(test.add(value_s, SHIFT_S) for value_s in late)
