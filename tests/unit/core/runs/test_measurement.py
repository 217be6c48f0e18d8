from __future__ import annotations

from dataclasses import fields

from autotuner.core.runs.measurement import Breakdown
from tests.builders import measurement


def test_the_parts_of_a_breakdown_sum_to_its_step() -> None:
    parts = [field.name for field in fields(Breakdown) if field.name != "rank"]
    powers = {name: 2.0**exponent for exponent, name in enumerate(parts)}  # no two subsets have the same sum
    assert Breakdown(rank=7, **powers).step_s == 2.0 ** len(parts) - 1


def test_how_well_a_step_time_is_known_is_told_by_its_interval_or_else_by_its_quartiles() -> None:
    assert measurement(step_time_interval_s=0.02).step_time_error_s == 0.02
    few = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=4)
    many = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=16)
    assert few.step_time_error_s == 2 * many.step_time_error_s
    assert 0.08 < few.step_time_error_s < 0.1  # 1.96 x 1.253 / 1.349 of half the distance of the quartiles
