"""Arithmetic of works."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.layer.work import Work

ONE = Work.of(2, matrix_s=np.array([1.0, 2.0]), tensor_s=0.5, forward_s=0.75, weight_gradient_s=0.25)
TWO = Work.of(2, matrix_s=3.0, recompute_s=np.array([4.0, 5.0]))


def test_parts_are_read_by_name_and_those_not_given_are_zero() -> None:
    assert ONE.matrix_s.tolist() == [1.0, 2.0]
    assert ONE.tensor_s.tolist() == [0.5, 0.5]
    assert ONE.attention_s.tolist() == [0.0, 0.0]


def test_a_part_that_does_not_exist_is_neither_read_nor_written() -> None:
    with pytest.raises(AttributeError, match="lunch_s"):
        _ = ONE.lunch_s
    with pytest.raises(ValueError):  # noqa: PT011  # tuple.index words it by version of Python
        Work.of(1, lunch_s=1.0)


def test_the_total_counts_every_second_once_and_no_share_of_it_again() -> None:
    names = ("matrix_s", "attention_s", "pointwise_s", "host_s", "recompute_s", "tensor_s", "context_s", "expert_s")
    parts = {name: float(2**place) for place, name in enumerate(names)}
    work = Work.of(1, **parts, forward_s=1e6, weight_gradient_s=1e6, backward_s=1e6)
    assert work.total_s.tolist() == [2.0**8 - 1]
    assert work.compute_s.tolist() == [1.0 + 2.0 + 4.0 + 8.0]


def test_works_add_subtract_and_multiply_part_by_part() -> None:
    assert (ONE + TWO).matrix_s.tolist() == [4.0, 5.0]
    assert (ONE + TWO).recompute_s.tolist() == [4.0, 5.0]
    assert (ONE + TWO - TWO).seconds.tolist() == ONE.seconds.tolist()
    assert (ONE * 3.0).forward_s.tolist() == [2.25, 2.25]
    assert (ONE * np.array([0, 2])).matrix_s.tolist() == [0.0, 4.0]


def test_layouts_are_joined_and_picked() -> None:
    both = ONE.beside(TWO)
    assert both.matrix_s.tolist() == [1.0, 2.0, 3.0, 3.0]
    assert both.take(np.array([3, 0])).matrix_s.tolist() == [3.0, 1.0]


def test_the_passes_of_a_work_are_all_of_it() -> None:
    passes = ONE.passes()
    assert passes.forward_s.tolist() == [0.75, 0.75]
    assert passes.weight_s.tolist() == [0.25, 0.25]
    assert passes.total_s.tolist() == ONE.total_s.tolist()
