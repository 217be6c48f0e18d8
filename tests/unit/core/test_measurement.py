"""Tests of ``autotuner.core.measurement``."""

from __future__ import annotations

from dataclasses import fields

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.measurement import Breakdown, RobustMeasurement
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


TRACE = FaultTrace.parse("2;0_1;0.06\n4;0_1;0", num_steps=6)


def reached(*times_s: float) -> RobustMeasurement:
    return RobustMeasurement.of(TRACE, times_s, model_flop=30.0, peak_flop_per_s=100.0, tokens=60)


def test_the_robust_step_time_is_the_mean_of_all_steps_of_the_trace_and_the_rest_follows_it() -> None:
    found = reached(1.0, 1.0, 4.0, 4.0, 1.0, 1.0)
    assert (found.step_time_s, found.mfu, found.tokens_per_s, found.num_steps) == (2.0, 0.15, 30.0, 6)


def test_each_stretch_keeps_its_links_and_its_own_steps() -> None:
    healthy, slow, healed = reached(1.0, 2.0, 3.0, 4.0, 5.0, 6.0).stretches
    assert (healthy.links, healthy.step_times_s) == ((), (1.0, 2.0))
    assert ([str(link) for link in slow.links], slow.step_times_s) == (["0_1"], (3.0, 4.0))
    assert (healed.first_step, healed.links, healed.step_times_s) == (4, (), (5.0, 6.0))


def test_what_a_fault_costs_is_no_scatter_of_the_steps() -> None:
    assert reached(1.0, 1.0, 4.0, 4.0, 1.0, 1.0).step_time_error_s == 0.0
    assert reached(1.0, 1.2, 4.0, 4.2, 1.0, 1.2).relative_error > 0.0


def test_a_trace_that_did_not_run_to_its_end_reached_nothing() -> None:
    with pytest.raises(InvalidInput, match="one per step of the trace"):
        reached(1.0, 1.0)
