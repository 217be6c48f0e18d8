"""Arithmetic of passes."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.layer.passes import Passes

ONE = Passes(forward_s=np.array([1.0, 2.0]), input_s=np.array([3.0, 4.0]), weight_s=np.array([5.0, 6.0]))
TEN = Passes(forward_s=np.array([10.0, 10.0]), input_s=np.array([20.0, 20.0]), weight_s=np.array([30.0, 30.0]))


def seconds(passes: Passes) -> list[list[float]]:
    return [passes.forward_s.tolist(), passes.input_s.tolist(), passes.weight_s.tolist()]


def test_a_backward_is_both_gradients_and_the_total_also_the_forward() -> None:
    assert ONE.backward_s.tolist() == [8.0, 10.0]
    assert ONE.total_s.tolist() == [9.0, 12.0]


def test_passes_add_subtract_and_multiply_pass_by_pass() -> None:
    assert seconds(ONE + TEN) == [[11.0, 12.0], [23.0, 24.0], [35.0, 36.0]]
    assert seconds(ONE + TEN - TEN) == seconds(ONE)
    assert seconds(ONE * np.array([0, 2])) == [[0.0, 4.0], [0.0, 8.0], [0.0, 12.0]]


def test_layouts_are_picked_in_the_order_of_the_index() -> None:
    assert seconds(ONE.take(np.array([1, 0, 1]))) == [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0], [6.0, 5.0, 6.0]]


def test_a_send_follows_the_forward_and_the_gradient_that_another_stage_waits_for() -> None:
    assert seconds(ONE.with_sends(np.array([0.5, 0.0]))) == [[1.5, 2.0], [3.5, 4.0], [5.0, 6.0]]
