"""What moving memory takes: norms, loss, optimizer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.costmodel.traffic import optimizer_s
from autotuner.domain.layout import Layout
from tests.builders import cpu_layout, tiny_job
from tests.unit.costmodel.works import TENSOR, columns, first, layer, output, with_stack


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


def test_the_optimizer_moves_its_state_once() -> None:
    x = columns(cpu_layout())
    job = with_stack(tiny_job(1))
    # in fp32: read and write weight and two moments, read the gradient: 28 bytes at 85 % of 10 GB/s; rounding only
    assert first(optimizer_s(x, job, np.array([1e9]))) == pytest.approx(28 / (0.85 * 10), rel=1e-12)


def test_what_a_stack_does_once_a_step_is_added_to_the_optimizer() -> None:
    x, nothing = columns(Layout()), np.zeros(1)
    seconds = (first(optimizer_s(x, with_stack(step_overhead_s=s), nothing)) for s in (0.0, 0.5))
    assert list(seconds) == [0.0, 0.5]
