"""Tests of ``autotuner.core.convergence_gate``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from autotuner.core.choices import GradientClip, GradientSync, PayloadPrecision, Precision
from autotuner.core.columns import LayoutColumns
from autotuner.core.convergence_gate import (
    GateOutcome,
    GateResult,
    LossGate,
    Training,
    function_key,
    is_hopeless,
    judge,
    trains_no_better,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from tests.builders import cpu_layout

DEMO = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)


def test_layouts_that_differ_in_speed_alone_have_the_same_mathematics() -> None:
    other = replace(DEMO, tensor_parallel_degree=2, micro_batch_size=4, compiled=True)
    assert function_key(DEMO) == function_key(other)


@pytest.mark.parametrize(
    "other",
    [
        Layout(data_parallel_replicate_degree=2),
        replace(DEMO, data_parallel_replicate_degree=4),
        replace(DEMO, sync_sign=False),
        replace(DEMO, precision=Precision.FP8),
    ],
)
def test_exchange_replicas_and_format_are_mathematics(other: Layout) -> None:
    assert function_key(DEMO) != function_key(other)


def test_replicas_are_no_mathematics_where_they_exchange_all() -> None:
    assert function_key(Layout()) == function_key(Layout(data_parallel_replicate_degree=8))


def test_buckets_are_mathematics_where_each_has_a_norm_of_its_own() -> None:
    large = Layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET)
    assert function_key(replace(large, gradient_bucket_bytes=2**20)) != function_key(large)


def test_over_how_many_ranks_a_matrix_is_split_is_mathematics_in_8_bits_alone() -> None:
    assert function_key(Layout()) == function_key(Layout(tensor_parallel_degree=2))
    split = Layout(precision=Precision.FP8, tensor_parallel_degree=2)
    assert function_key(Layout(precision=Precision.FP8)) != function_key(split)


@pytest.mark.parametrize(
    ("less", "is_less"),
    [
        (replace(DEMO, sync_top_k=2), True),
        (replace(DEMO, payload_precision=PayloadPrecision.BF16), True),
        (DEMO, False),
    ],
)
def test_what_sends_less_trains_no_better_and_what_sends_more_may(less: Layout, is_less: bool) -> None:
    assert trains_no_better(less, DEMO)
    assert trains_no_better(DEMO, less) is not is_less


def test_another_exchange_that_sends_less_may_train_better() -> None:
    diloco = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DILOCO, sync_period=1000)
    assert not trains_no_better(diloco, DEMO)


def test_columns_are_judged_as_layouts_are() -> None:
    rows = [DEMO, Layout(), replace(DEMO, sync_top_k=2)]
    judged = trains_no_better(cast("Layout", LayoutColumns.from_layouts(rows)), DEMO)
    assert judged.tolist() == [trains_no_better(row, DEMO) for row in rows] == [True, False, True]


GATE = LossGate(num_steps=4, num_seeds=3, tolerance=0.02)
REFERENCE = ((7.0, 6.0, 5.0, 4.0), (7.1, 6.1, 5.1, 4.1), (6.9, 5.9, 4.9, 3.9))


def judged(*factors: float) -> GateResult:
    """What is found of curves that lie by these factors from the reference's."""
    curves = [tuple(factor * loss for loss in curve) for factor, curve in zip(factors, REFERENCE, strict=True)]
    return judge(GATE, cpu_layout(), trained(*curves), trained(*REFERENCE))


def trained(*curves: tuple[float, ...]) -> list[Training]:
    """Runs with these losses, of which nothing was validated."""
    return [Training(losses=curve, step_time_s=0.5) for curve in curves]


def validated(*losses: float) -> list[Training]:
    """Runs with the reference's curves that end at these losses on what all ranks read."""
    return [Training(losses=curve, validation_loss=loss) for curve, loss in zip(REFERENCE, losses, strict=True)]


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
    assert judge(GATE, cpu_layout(), trained(*late), trained(*REFERENCE)).outcome is GateOutcome.PASSED


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


def test_what_was_validated_decides_where_anything_was() -> None:
    found = judge(GATE, cpu_layout(), validated(4.4, 4.5, 4.3), validated(4.0, 4.1, 3.9))
    assert found.outcome is GateOutcome.FAILED  # though its curves are the reference's
    assert (found.candidate_validation, found.reference_validation) == ((4.4, 4.5, 4.3), (4.0, 4.1, 3.9))


def test_one_pair_rejects_what_lies_far_off_and_two_what_is_surely_off() -> None:
    assert is_hopeless(GATE, trained((7.0, 6.0, 5.6, 4.6)), trained(REFERENCE[0]))
    assert not is_hopeless(GATE, trained((7.0, 6.0, 5.2, 4.2)), trained(REFERENCE[0]))
    off = [tuple(1.05 * loss for loss in curve) for curve in REFERENCE]
    assert is_hopeless(GATE, trained(*off[:2]), trained(*REFERENCE[:2]))
    assert is_hopeless(GATE, trained((7.0, math.nan, 5.0, 4.0)), trained(REFERENCE[0]))


def test_fewer_seeds_than_asked_for_never_pass() -> None:
    found = judge(GATE, cpu_layout(), trained(REFERENCE[0]), trained(REFERENCE[0]))
    assert found.outcome is GateOutcome.FAILED
    assert found.detail.startswith("after 4 steps from 1 of 3 seeds the loss is +0.00 % from")


def test_a_candidate_that_learns_as_much_needs_as_many_steps_as_its_reference() -> None:
    found = judged(1.0, 1.0, 1.0)
    assert (found.steps_to_loss, found.reference_steps) == (4.0, 4)
    assert found.target_loss == pytest.approx(4.5)  # the mean of the last half, but for rounding
    assert found.reference_time_to_loss_s == 2.0


def test_what_is_missing_at_the_end_takes_steps_at_the_pace_of_the_reference() -> None:
    found = judge(GATE, cpu_layout(), validated(4.5, 4.6, 4.4), validated(4.0, 4.1, 3.9))
    assert found.steps_to_loss == pytest.approx(4.5)  # half of what the reference learns in a step, but for rounding


def test_a_reference_that_learns_nothing_tells_no_steps() -> None:
    flat = trained((7.0, 7.0, 7.0, 7.0))
    assert judge(replace(GATE, num_seeds=2), cpu_layout(), [*flat, *flat], [*flat, *flat]).steps_to_loss is None


def test_diloco_is_compared_at_an_exchange_and_all_others_after_the_steps_asked_for() -> None:
    gate = LossGate(num_steps=6, num_lossy_steps=20)
    assert gate.steps_of(cpu_layout()) == 6
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DILOCO, sync_period=16)) == 32
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DILOCO, sync_period=5)) == 20
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DEMO)) == 20


def test_a_shared_verdict_names_the_trial_that_was_gated_and_costs_nothing() -> None:
    found = judged(1.0, 1.0, 1.0).having_cost(2.0).shared(7, "has the same mathematics")
    assert (found.shared_from, found.accelerator_hours, found.outcome) == (7, 0.0, GateOutcome.PASSED)
    assert found.detail.startswith("as trial 7, which has the same mathematics: after 4 steps")
