"""Breakdowns of many steps."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from autotuner.core.prediction import StepTime
from autotuner.costmodel.step.step_time import StepTimeColumns


def test_columns_have_the_parts_of_one_step_in_the_same_order() -> None:
    assert [f.name for f in fields(StepTimeColumns)] == [f.name for f in fields(StepTime)]


def test_the_step_is_the_sum_of_every_part() -> None:
    parts = {f.name: np.array([2.0**place, 3.0**place]) for place, f in enumerate(fields(StepTimeColumns))}
    assert StepTimeColumns(**parts).total_s.tolist() == [2.0**13 - 1, (3.0**13 - 1) / 2]


def test_a_total_does_not_depend_on_how_many_rows_there_are_nor_on_whether_it_is_one() -> None:
    source = np.random.default_rng(0)
    parts = {f.name: source.random(1000) for f in fields(StepTimeColumns)}
    together = StepTimeColumns(**parts).total_s
    alone = StepTimeColumns(**{name: values[:1] for name, values in parts.items()}).total_s
    one = StepTime(**{name: float(values[0]) for name, values in parts.items()})
    assert together[0] == alone[0] == one.total_s
