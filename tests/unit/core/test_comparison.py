"""How runs and losses are compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from autotuner.core.choices import GradientClip, GradientSync, PayloadPrecision, Precision
from autotuner.core.columns import LayoutColumns
from autotuner.core.comparison import RunGroup, SequentialTest, environment_changes
from autotuner.core.convergence_gate import (
    ConvergenceGate,
    GateOutcome,
    GateResult,
    Training,
    function_key,
    is_hopeless,
    judge,
    trains_no_better,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measuring import LINKS
from tests.builders import cpu_layout


@pytest.mark.parametrize("name", ["loss", "power", "false_alarms"])
def test_nothing_is_asked_for_that_no_number_of_runs_can_give(name: str) -> None:
    with pytest.raises(InvalidInput, match="no test is certain"):
        replace(SequentialTest(), **{name: 1.0})  # type: ignore[arg-type]  # some of its fields are whole numbers


def test_a_test_that_no_number_of_runs_can_settle_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be less than loss, the slowdown"):
        SequentialTest(tolerance=0.05, loss=0.05)
    with pytest.raises(InvalidInput, match="must be at least min_runs"):
        SequentialTest(min_runs=5, max_runs=4)
    with pytest.raises(InvalidInput, match="above 0"):
        RunGroup(rates=(1.0, 0.0), mfu=0.4, at=0.0)


NIGHT = {"torch": "2.12", "driver": "580.82", "kernel": "6.1", "host": "a", "sm_clock_mhz": "1980", "os": "Debian 12"}


def changes(then: dict[str, str], now: dict[str, str]) -> list[str]:
    return [str(change) for change in environment_changes(then, now)]


def test_a_change_says_what_was_and_what_is_where_that_is_known_to_be_one() -> None:
    assert changes(NIGHT, NIGHT) == []
    assert changes(NIGHT, {**NIGHT, "libc": "glibc-2.36"}) == []
    assert changes({}, NIGHT) == changes(NIGHT, {}) == []
    assert changes(NIGHT, {**NIGHT, "torch": "2.13"}) == ["torch was 2.12 and is 2.13"]
    assert changes(NIGHT, {**NIGHT, "NCCL_ALGO": "Tree"}) == ["NCCL_ALGO is Tree now and was not recorded before"]
    assert changes({**NIGHT, "NCCL_ALGO": "Tree"}, NIGHT) == ["NCCL_ALGO was Tree before and is not recorded now"]
    found = changes({**NIGHT, "nodes": "a,b,c"}, {**NIGHT, "nodes": "a,d,c"})
    assert found == ["the runs used 3 nodes before and use 3 now, of which 1 are new (d)"]
    found = changes({**NIGHT, "foreign_cpu_share": "0.01"}, {**NIGHT, "foreign_cpu_share": "0.31"})
    assert found == ["foreign_cpu_share was 0.01 and is 0.31"]


def test_the_likeliest_cause_of_a_slower_step_comes_first_and_links_before_versions() -> None:
    now = {
        "torch": "2.13",
        "driver": "590.1",
        "kernel": "6.2",
        "host": "b",
        "sm_clock_mhz": "1200",
        "OMP_NUM_THREADS": "4",
        "clocks_held_by": "heat",
        "os": "Debian 12",
    }
    names = [change.name for change in environment_changes(NIGHT, now)]
    assert names == ["clocks_held_by", "sm_clock_mhz", "OMP_NUM_THREADS", "torch", "driver", "kernel", "host"]
    late = {"torch": "2.12.0", LINKS: "nodes 2 and 3: 60 ms late"}
    slower, other = environment_changes({"torch": "2.13.0"}, late)
    assert str(slower) == "links before: all healthy; links now: nodes 2 and 3: 60 ms late"
    assert other.name == "torch"
    (healed,) = environment_changes(late, {"torch": "2.12.0"})
    assert str(healed) == "links before: nodes 2 and 3: 60 ms late; links now: all healthy"


@pytest.mark.parametrize(
    ("name", "then", "now"),
    [("sm_clock_mhz", "1980", "1965"), ("foreign_cpu_share", "0.01", "0.04"), ("CUDA_VISIBLE_DEVICES", "0", "3")],
)
def test_random_variation_is_not_a_change(name: str, then: str, now: str) -> None:
    assert changes({**NIGHT, name: then}, {**NIGHT, name: now}) == []


DEMO = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DEMO)


def test_layouts_that_differ_in_speed_alone_are_numerically_equivalent_and_columns_say_so_too() -> None:
    other = replace(DEMO, tensor_parallel_degree=2, micro_batch_size=4, compiled=True)
    assert function_key(DEMO) == function_key(other)
    assert function_key(Layout()) == function_key(Layout(data_parallel_replicate_degree=8))
    large = Layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.BUCKET)
    assert function_key(replace(large, gradient_bucket_bytes=2**20)) != function_key(large)
    assert function_key(Layout()) == function_key(Layout(tensor_parallel_degree=2))
    split = Layout(precision=Precision.FP8, tensor_parallel_degree=2)
    assert function_key(Layout(precision=Precision.FP8)) != function_key(split)
    diloco = Layout(data_parallel_replicate_degree=2, gradient_sync=GradientSync.DILOCO, sync_period=1000)
    assert not trains_no_better(diloco, DEMO)
    rows = [DEMO, Layout(), replace(DEMO, sync_top_k=2)]
    judged = trains_no_better(cast("Layout", LayoutColumns.from_layouts(rows)), DEMO)
    assert judged.tolist() == [trains_no_better(row, DEMO) for row in rows] == [True, False, True]


@pytest.mark.parametrize(
    "other",
    [
        Layout(data_parallel_replicate_degree=2),
        replace(DEMO, data_parallel_replicate_degree=4),
        replace(DEMO, sync_sign=False),
        replace(DEMO, precision=Precision.FP8),
    ],
)
def test_the_exchange_replicas_and_format_decide_numerical_equivalence(other: Layout) -> None:
    assert function_key(DEMO) != function_key(other)


@pytest.mark.parametrize(
    ("less", "is_less"),
    [
        (replace(DEMO, sync_top_k=2), True),
        (replace(DEMO, payload_precision=PayloadPrecision.BF16), True),
        (DEMO, False),
    ],
)
def test_an_exchange_that_sends_less_is_not_expected_to_train_better(less: Layout, is_less: bool) -> None:
    assert trains_no_better(less, DEMO)
    assert trains_no_better(DEMO, less) is not is_less


GATE = ConvergenceGate(num_steps=4, num_seeds=3, tolerance=0.02)
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


def test_a_loss_within_the_tolerance_passes_and_a_higher_one_disagreeing_seeds_or_none_fail() -> None:
    found = judged(1.0, 1.0, 1.0)
    assert (found.outcome, found.excess, found.noise) == (GateOutcome.PASSED, 0.0, 0.0)
    assert judged(1.03, 1.03, 1.03).outcome is GateOutcome.FAILED
    assert judged(0.9, 0.9, 0.9).outcome is GateOutcome.PASSED
    late = [(9 * curve[0], 9 * curve[1], *curve[2:]) for curve in REFERENCE]
    assert judge(GATE, cpu_layout(), trained(*late), trained(*REFERENCE)).outcome is GateOutcome.PASSED
    found = judged(1.0, math.nan, 1.0)
    assert found.outcome is GateOutcome.FAILED
    assert len(found.candidate_losses) == 3
    found = judged(1.01, 1.011, 1.009)
    assert found.outcome is GateOutcome.PASSED
    assert found.excess == pytest.approx(0.01)  # the mean of the three, but for rounding
    # t of two degrees of freedom, 2.92, times 0.001 / sqrt(3)
    assert found.noise == pytest.approx(2.920 * 0.001 / math.sqrt(3))
    found = judged(0.95, 1.0, 1.05)
    assert found.excess == pytest.approx(0.0, abs=1e-12)  # but for rounding
    assert found.outcome is GateOutcome.FAILED
    found = judge(GATE, cpu_layout(), trained(REFERENCE[0]), trained(REFERENCE[0]))
    assert found.outcome is GateOutcome.FAILED
    assert found.detail.startswith("after 4 steps from 1 of 3 seeds the candidate's loss differs by +0.00 % from")
    assert is_hopeless(GATE, trained((7.0, 6.0, 5.6, 4.6)), trained(REFERENCE[0]))
    assert not is_hopeless(GATE, trained((7.0, 6.0, 5.2, 4.2)), trained(REFERENCE[0]))
    off = [tuple(1.05 * loss for loss in curve) for curve in REFERENCE]
    assert is_hopeless(GATE, trained(*off[:2]), trained(*REFERENCE[:2]))
    assert is_hopeless(GATE, trained((7.0, math.nan, 5.0, 4.0)), trained(REFERENCE[0]))


@pytest.mark.parametrize("num_seeds", [1, 11])
def test_a_gate_of_one_seed_or_of_too_many_is_refused_with_the_nearest_number(num_seeds: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        ConvergenceGate(num_seeds=num_seeds)
    assert caught.value.nearest == min(max(num_seeds, 2), 10)


def test_validated_software_decides_if_there_is_any() -> None:
    found = judge(GATE, cpu_layout(), validated(4.4, 4.5, 4.3), validated(4.0, 4.1, 3.9))
    assert found.outcome is GateOutcome.FAILED  # though its curves are the reference's
    assert (found.candidate_validation, found.reference_validation) == ((4.4, 4.5, 4.3), (4.0, 4.1, 3.9))


def test_steps_to_the_loss_are_counted_at_the_pace_of_the_reference() -> None:
    found = judged(1.0, 1.0, 1.0)
    assert (found.steps_to_loss, found.reference_steps) == (4.0, 4)
    assert found.target_loss == pytest.approx(4.5)  # the mean of the last half, but for rounding
    assert found.reference_time_to_loss_s == 2.0
    found = judge(GATE, cpu_layout(), validated(4.5, 4.6, 4.4), validated(4.0, 4.1, 3.9))
    assert found.steps_to_loss == pytest.approx(4.5)  # half of what the reference learns in a step, but for rounding
    flat = trained((7.0, 7.0, 7.0, 7.0))
    assert judge(replace(GATE, num_seeds=2), cpu_layout(), [*flat, *flat], [*flat, *flat]).steps_to_loss is None


def test_diloco_is_compared_at_an_exchange_and_all_others_after_the_steps_asked_for() -> None:
    gate = ConvergenceGate(num_steps=6, num_lossy_steps=20)
    assert gate.steps_of(cpu_layout()) == 6
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DILOCO, sync_period=16)) == 32
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DILOCO, sync_period=5)) == 20
    assert gate.steps_of(cpu_layout(gradient_sync=GradientSync.DEMO)) == 20


def test_a_shared_verdict_names_the_trial_that_was_gated_and_costs_nothing() -> None:
    found = judged(1.0, 1.0, 1.0).having_cost(2.0).shared(7, "has the same mathematics")
    assert (found.shared_from, found.accelerator_hours, found.outcome) == (7, 0.0, GateOutcome.PASSED)
    assert found.detail.startswith("taken from trial 7, which has the same mathematics: after 4 steps")
