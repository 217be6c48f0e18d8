"""Arithmetic of works."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from autotuner.costmodel.layer.work import Work
from tests.unit.costmodel.works import parts

WHEN = ("forward_s", "weight_gradient_s", "backward_s")
"""Parts that say when, and take no time of their own."""

HALF = np.full(2, 0.5)
ONE = replace(
    Work.nothing(2),
    matrix_s=np.array([1.0, 2.0]),
    tensor_s=HALF,
    forward_s=1.5 * HALF,
    weight_gradient_s=0.5 * HALF,
)
TWO = replace(Work.nothing(2), matrix_s=np.full(2, 3.0), recompute_s=np.array([4.0, 5.0]))


def test_no_work_takes_no_time_in_any_part() -> None:
    assert parts(Work.nothing(2)) == [[0.0, 0.0]] * len(fields(Work))


def test_a_part_that_does_not_exist_is_neither_read_nor_written() -> None:
    with pytest.raises(AttributeError, match="offlaod_s"):
        _ = ONE.offlaod_s  # type: ignore[attr-defined]  # mypy finds it too
    with pytest.raises(TypeError, match="offlaod_s"):
        replace(ONE, offlaod_s=HALF)  # type: ignore[call-arg]  # mypy finds it too


def test_the_total_counts_every_second_once_and_no_part_of_it_again() -> None:
    summed = [f.name for f in fields(Work) if f.name not in WHEN]
    seconds = {name: np.array([2.0**number]) for number, name in enumerate(summed)}
    work = Work(**seconds, **dict.fromkeys(WHEN, np.array([1e6])))
    assert work.total_s.tolist() == [2.0 ** len(summed) - 1]
    assert work.compute_s.tolist() == [1.0 + 2.0 + 4.0 + 8.0]


def test_works_add_subtract_and_multiply_part_by_part() -> None:
    assert (ONE + TWO).matrix_s.tolist() == [4.0, 5.0]
    assert (ONE + TWO).recompute_s.tolist() == [4.0, 5.0]
    assert parts(ONE + TWO - TWO) == parts(ONE)
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
