from __future__ import annotations

import math

import pytest

from autotuner.domain.runs.loss_gate import GateOutcome, GateResult, LossGate, judge
from autotuner.errors import InvalidInput
from tests.builders import cpu_layout

GATE = LossGate(num_steps=4, num_seeds=3, tolerance=0.02)
REFERENCE = ((7.0, 6.0, 5.0, 4.0), (7.1, 6.1, 5.1, 4.1), (6.9, 5.9, 4.9, 3.9))


def judged(*factors: float) -> GateResult:
    """What is found of curves that lie by these factors from the reference's."""
    curves = [tuple(factor * loss for loss in curve) for factor, curve in zip(factors, REFERENCE, strict=True)]
    return judge(GATE, cpu_layout(), curves, REFERENCE)


def test_the_same_curves_pass_without_excess_or_noise() -> None:
    found = judged(1.0, 1.0, 1.0)
    assert (found.outcome, found.excess, found.noise) == (GateOutcome.PASSED, 0.0, 0.0)


def test_a_loss_that_is_higher_by_less_than_the_tolerance_passes() -> None:
    found = judged(1.01, 1.011, 1.009)
    assert found.outcome is GateOutcome.PASSED
    assert found.excess == pytest.approx(0.01)  # the mean of the three, but for rounding
    # t of two degrees of freedom, 2.92, times 0.001 / sqrt(3)
    assert found.noise == pytest.approx(2.920 * 0.001 / math.sqrt(3))


def test_a_loss_that_is_higher_by_more_than_the_tolerance_fails() -> None:
    assert judged(1.03, 1.03, 1.03).outcome is GateOutcome.FAILED


def test_a_lower_loss_passes_however_much_lower() -> None:
    assert judged(0.9, 0.9, 0.9).outcome is GateOutcome.PASSED


def test_seeds_that_disagree_too_much_to_tell_do_not_pass() -> None:
    found = judged(0.95, 1.0, 1.05)
    assert found.excess == pytest.approx(0.0, abs=1e-12)  # but for rounding
    assert found.outcome is GateOutcome.FAILED


def test_first_steps_do_not_count() -> None:
    late = [(9 * curve[0], 9 * curve[1], *curve[2:]) for curve in REFERENCE]
    assert judge(GATE, cpu_layout(), late, REFERENCE).outcome is GateOutcome.PASSED


def test_a_loss_that_is_no_number_fails_and_keeps_its_curve() -> None:
    found = judged(1.0, math.nan, 1.0)
    assert found.outcome is GateOutcome.FAILED
    assert len(found.candidate_losses) == 3


def test_both_curves_and_the_numbers_are_told() -> None:
    found = judged(1.03, 1.03, 1.03)
    assert found.reference_losses == REFERENCE
    assert found.detail == (
        f"after 4 steps the loss is +3.00 ± 0.00 % from the reference's {cpu_layout()}, not shown to be within 2 %"
    )


@pytest.mark.parametrize("num_seeds", [1, 11])
def test_a_gate_of_one_seed_or_of_too_many_is_refused_with_the_nearest_number(num_seeds: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        LossGate(num_seeds=num_seeds)
    assert caught.value.nearest == min(max(num_seeds, 2), 10)


def test_a_gate_without_steps_or_tolerance_is_refused() -> None:
    with pytest.raises(InvalidInput, match="num_steps"):
        LossGate(num_steps=0)
    with pytest.raises(InvalidInput, match="tolerance"):
        LossGate(tolerance=0.0)
