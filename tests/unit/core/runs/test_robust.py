from __future__ import annotations

import pytest

from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.runs.robust import RobustMeasurement
from autotuner.errors import InvalidInput

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
