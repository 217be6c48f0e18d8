"""Runs of two layouts beside each other: what is decided, and when it is not."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.comparison import Comparison, Decision, RunGroup, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.report.verdicts import comparison_in_words
from autotuner.search.sequential_test import compare, next_baseline_runs, next_runs

TEST = SequentialTest()


def group(*rates: float) -> RunGroup:
    return RunGroup(rates=rates, mfu=0.4, at=0.0)


def runs(seed: int, num_runs: int, mean: float = 100.0, noise: float = 0.01) -> RunGroup:
    return group(*(mean * np.exp(noise * np.random.default_rng(seed).standard_normal(num_runs))))


def decision(reference: RunGroup, candidate: RunGroup, *, same_session: bool = False) -> Decision:
    return compare([reference], [candidate], TEST, same_session=same_session).decision


def ended(reference: list[RunGroup], candidate: RunGroup) -> Comparison:
    """The comparison that decided, looked at after every run; or the last."""
    for num_runs in range(1, len(candidate.rates) + 1):
        comparison = compare(reference, [group(*candidate.rates[:num_runs])], TEST)
        if comparison.decision is not Decision.UNDECIDED:
            break
    return comparison


def test_runs_that_lost_are_slower_and_equal_or_faster_ones_are_not() -> None:
    assert decision(group(100, 101, 99, 100.5), group(95, 96, 94)) is Decision.SLOWER
    assert decision(group(100, 101, 99, 100.5), group(100, 99.5, 101)) is Decision.NOT_SLOWER
    assert decision(group(100, 101, 99, 100.5), group(103, 104, 103)) is Decision.NOT_SLOWER
    assert decision(group(100, 101, 99, 100.5), group(190, 191, 192)) is Decision.NOT_SLOWER
    assert decision(group(100, 101, 99, 100.5), group(50, 51, 49.5)) is Decision.SLOWER


@pytest.mark.parametrize("percent", [6, 8, 13, 25, 30, 45, 60])
def test_quiet_runs_in_one_session_decide_a_loss_of_any_size(percent: int) -> None:
    quiet = 1 - percent / 100
    assert decision(group(100, 100.01, 99.99), group(100 * quiet, 100.01 * quiet, 99.99 * quiet)) is Decision.SLOWER
    faster = group(100 / quiet, 100.01 / quiet, 99.99 / quiet)
    assert decision(group(100, 100.01, 99.99), faster) is Decision.NOT_SLOWER


def test_few_noisy_or_equal_runs_are_compared_and_a_side_without_runs_is_refused() -> None:
    assert decision(group(100, 101, 99, 100.5), group(70, 71)) is Decision.UNDECIDED
    comparison = compare([runs(1, 5, noise=0.1)], [runs(2, 5, noise=0.1)], TEST)
    assert comparison.decision is Decision.UNDECIDED
    assert comparison_in_words(comparison).endswith("which is too uncertain for a decision")
    assert decision(group(100, 100, 100), group(100, 100, 100)) is Decision.NOT_SLOWER
    assert decision(group(100, 100, 100), group(95, 95, 95)) is Decision.SLOWER
    with pytest.raises(InvalidInput, match="reference"):
        compare([], [group(100)], TEST)


def test_outliers_and_losses_within_the_tolerance_are_distinguished_from_losses() -> None:
    nights = [group(100, 100.1, 99.9, 100) for _ in range(8)]
    assert compare(nights, [group(98.5, 98.6, 98.4, 98.5)], TEST).decision is Decision.NOT_SLOWER
    nights = [group(100, 100.1, 99.9, 100) for _ in range(12)]
    assert compare(nights, [group(97.3, 97.2, 97.4, 97.3)], TEST).decision is Decision.SLOWER
    nights = [group(m, 1.001 * m, 0.999 * m, m) for m in (100, 104, 97, 102, 95, 103)]
    assert compare(nights, [group(95.2, 95.1, 95.3, 95.2)], TEST).decision is Decision.UNDECIDED
    steady = group(100, 100.3, 99.8, 100.1, 99.9)
    assert decision(steady, group(95, 95.2, 94.9, 95.1, 60)) is Decision.SLOWER
    assert decision(steady, group(100, 100.2, 99.9, 100.1, 60)) is Decision.NOT_SLOWER
    assert decision(group(100, 100.3, 99.8, 100.1, 99.9), group(100, 85, 85.2)) is Decision.UNDECIDED


def test_runs_by_turns_are_compared_pair_by_pair_so_that_a_drift_does_not_matter() -> None:
    drift = np.linspace(100, 140, 8)
    reference, candidate = group(*drift), group(*(0.95 * drift))
    assert decision(reference, candidate, same_session=True) is Decision.SLOWER
    assert decision(reference, candidate) is Decision.UNDECIDED
    both = compare([group(100, 101, 99)], [group(95, 96, 94, 1)], TEST, same_session=True)
    assert both.decision is Decision.SLOWER
    assert (both.num_reference, both.num_candidate) == (3, 4)


def test_a_comparison_says_its_change_interval_runs_and_noise() -> None:
    few = compare([runs(1, 20)], [runs(2, 4, mean=95)], TEST)
    many = compare([runs(1, 20)], [runs(2, 40, mean=95)], TEST)
    assert few.low < -0.05 < few.high
    assert many.high - many.low < few.high - few.low
    comparison = compare([runs(1, 40)], [runs(2, 40, mean=80)], TEST)
    assert comparison.noise == pytest.approx(0.01, rel=0.2)  # 78 degrees of freedom: 8 % off, once in three
    detail = comparison_in_words(compare([group(100, 101, 99, 100.5)], [group(95, 96, 94)], TEST))
    assert detail == "5.1 % slower (95 % interval 2.7 to 7.5 %), from 3 runs compared with 4 that scatter by 1.2 %"


@pytest.mark.parametrize(("noise", "baseline"), [(0.003, 3), (0.01, 5), (0.02, 10)])
def test_at_most_one_in_a_hundred_equal_layouts_is_called_slower(noise: float, baseline: int) -> None:
    ends = [ended([runs(2 * i, baseline, noise=noise)], runs(2 * i + 1, 20, noise=noise)) for i in range(40)]
    assert sum(end.decision is Decision.SLOWER for end in ends) <= 2  # 3 of 40 at 1 %: less than once in 100


def test_nearly_all_layouts_that_lost_five_percent_are_found() -> None:
    ends = [ended([runs(2 * i, 5)], runs(2 * i + 1, 20, mean=95)) for i in range(40)]
    assert sum(end.decision is Decision.SLOWER for end in ends) >= 36  # 35 of 40 at 95 %: once in 30


def test_more_runs_are_asked_for_until_it_is_decided_and_more_beside_a_noisy_baseline() -> None:
    reference, candidate = runs(1, 10, noise=0.02), runs(2, 40, mean=96, noise=0.02)
    assert next_runs([reference], [group(*candidate.rates[:2])], TEST) == 1
    num_runs = ended([reference], candidate).num_candidate
    assert next_runs([reference], [group(*candidate.rates[: num_runs - 1])], TEST) > 0
    assert next_runs([reference], [group(*candidate.rates[:num_runs])], TEST) == 0
    nights = [group(m, 1.001 * m, 0.999 * m, m) for m in (100, 104, 97, 102, 95, 103)]
    assert next_runs(nights, [group(95.2, 95.1, 95.3, 95.2)], TEST) == 0
    assert next_baseline_runs(None, TEST) == 3
    assert next_baseline_runs(runs(1, 3, noise=0.001), TEST) == 0
    assert next_baseline_runs(runs(1, 4, noise=0.02), TEST) > 3
