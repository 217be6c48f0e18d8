from __future__ import annotations

from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.jobs.worst_links import at_worst
from tests.builders import tiny_job


def test_each_link_is_as_bad_as_it_ever_gets_and_a_dead_one_is_dead() -> None:
    trace = FaultTrace.parse("1;0_1;0.02\n2;0_1;0.06\n3;0_1;0\n4;2_3;dead\n5;2_3;0.1\n6;1_2;0")
    found = at_worst(tiny_job(4), trace).cluster.link_health
    assert [(str(one), one.delay_s, one.is_dead) for one in found] == [("0_1", 0.06, False), ("2_3", 0.0, True)]


def test_without_a_trace_links_are_as_they_are() -> None:
    assert at_worst(tiny_job(4), None) == tiny_job(4)
