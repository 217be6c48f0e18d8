"""What moving memory takes: norms, loss, optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.choices import OptimizerKernel
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.memory_bound import optimizer_s
from tests.builders import big_job, cpu_layout, llama_70b, tiny_job
from tests.unit.costmodel.works import TENSOR, columns, first, layer, output, parts, with_stack


def test_norms_of_elementary_operations_take_longer_than_fused_ones_and_nothing_else_does() -> None:
    fused, plain = (layer(Layout(fused_norm=f)) for f in (True, False))
    assert first(plain.pointwise_s) > first(fused.pointwise_s)
    assert first(plain.matrix_s + plain.attention_s) == first(fused.matrix_s + fused.attention_s)
    halves = [layer(Layout(fused_norm=f), with_stack(unfused_norm_traffic=0.0)) for f in (True, False)]
    assert first(halves[0].pointwise_s) == first(halves[1].pointwise_s)


def test_a_fused_loss_moves_less_memory() -> None:
    steps, fused = (output(Layout(), with_stack(fuses_loss=f)) for f in (False, True))
    assert first(fused.pointwise_s) < first(steps.pointwise_s) / 2
    assert first(fused.matrix_s) == first(steps.matrix_s)


def test_sequence_parallelism_splits_the_norms_and_computes_the_same_products() -> None:
    plain, split = (layer(replace(TENSOR, sequence_parallel=s)) for s in (False, True))
    assert first(split.pointwise_s) < first(plain.pointwise_s)
    assert first(split.matrix_s) == first(plain.matrix_s)


def test_norms_behind_blocks_move_memory_too_and_parallel_blocks_share_one() -> None:
    def pointwise_s(**shapes: Any) -> float:
        return first(layer(Layout(), replace(big_job(), model=llama_70b(**shapes))).pointwise_s)

    one, two, four = (pointwise_s(num_norms_per_layer=norms, parallel_blocks=norms < 4) for norms in (1, 2, 4))
    assert (four - pointwise_s(num_norms_per_layer=2)) == pytest.approx(2 * (two - one), rel=1e-12)  # rounding only
    assert two < pointwise_s(num_norms_per_layer=2)  # whose two residual sums are one


def test_what_weighs_the_output_of_attention_moves_memory() -> None:
    plain, gated = (
        layer(Layout(), replace(big_job(), model=llama_70b(attention_output_gate=gated))) for gated in (False, True)
    )
    assert first(gated.pointwise_s) > first(plain.pointwise_s)
    assert first(gated.matrix_s) > first(plain.matrix_s)


def test_the_optimizer_moves_its_state_once() -> None:
    x = columns(cpu_layout())
    job = with_stack(tiny_job(1))
    # in fp32: read and write weight and two moments, read the gradient: 28 bytes at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, job, np.array([1e9]))) == pytest.approx(28 / (0.85 * 10), rel=1e-12)


def test_what_a_stack_does_once_a_step_is_added_to_the_optimizer() -> None:
    x, nothing = columns(Layout()), np.zeros(1)
    seconds = (first(optimizer_s(x, with_stack(step_overhead_s=s), nothing)) for s in (0.0, 0.5))
    assert list(seconds) == [0.0, 0.5]


def test_a_compiled_layer_moves_what_one_kernel_for_each_operation_would() -> None:
    eager, compiled = (layer(Layout(compiled=c), with_stack(pointwise_traffic=1.9)) for c in (False, True))
    assert first(eager.pointwise_s) == pytest.approx(1.9 * first(compiled.pointwise_s), rel=1e-12)  # rounding
    assert first(eager.matrix_s + eager.attention_s) == first(compiled.matrix_s + compiled.attention_s)


def test_the_compiler_fuses_a_norm_of_elementary_operations() -> None:
    fused, plain = (layer(Layout(fused_norm=f, compiled=True)) for f in (True, False))
    assert parts(fused) == parts(plain)


def test_a_stack_that_moves_less_than_the_compiler_is_not_slowed_by_it() -> None:
    eager, compiled = (layer(Layout(compiled=c), with_stack(pointwise_traffic=0.85)) for c in (False, True))
    assert first(eager.pointwise_s) == first(compiled.pointwise_s)


def test_one_kernel_per_operation_moves_the_optimizers_state_again_and_again() -> None:
    x = columns(cpu_layout(optimizer_kernel=OptimizerKernel.FOREACH))
    # 20 passes over elements of 4 bytes (torch/optim/adam.py) at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, with_stack(tiny_job(1)), np.array([1e9]))) == pytest.approx(80 / (0.85 * 10), rel=1e-12)
