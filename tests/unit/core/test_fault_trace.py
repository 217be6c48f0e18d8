"""Tests of ``autotuner.core.fault_trace``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import Fault, FaultTrace, at_worst
from autotuner.core.link import LinkHealth
from tests.builders import tiny_job


def test_a_trace_is_cut_where_a_link_changes() -> None:
    trace = FaultTrace.parse("7;2_3;0.06\n30;2_3;0", num_steps=40)
    slow = (LinkHealth(ends=(2, 3), delay_s=0.06),)
    cut = [(one.first_step, one.num_steps, one.links) for one in trace.stretches()]
    assert cut == [(0, 7, ()), (7, 23, slow), (30, 10, ())]


def test_a_trace_lasts_as_long_after_its_last_fault_as_before_unless_its_length_is_said() -> None:
    assert FaultTrace.parse("7;2_3;0.06").num_steps == 14
    assert FaultTrace.parse("").num_steps == 1


def test_several_links_of_a_line_rates_and_deaths_are_read() -> None:
    trace = FaultTrace.parse("# episode\n 3; 1_0, 6_7; 200mbit\n5;0_1;inf")
    assert [str(fault) for fault in trace.faults] == ["3;0_1;200mbit", "3;6_7;200mbit", "5;0_1;dead"]
    assert trace.ends == ((0, 1), (6, 7))
    assert {link.bandwidth_bytes_per_s for link in trace.links_at(3)} == {25e6}


@pytest.mark.parametrize("line", ["7;2_3", "7;2-3;0.06", "x;2_3;0.06", "7;2_3;slow", "7;2_3;-1", "7;3_3;0.06"])
def test_a_line_that_is_no_fault_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        FaultTrace.parse(line)


def test_faults_out_of_order_or_behind_the_end_are_refused() -> None:
    with pytest.raises(InvalidInput, match="order"):
        FaultTrace.parse("9;0_1;1\n3;0_1;0")
    with pytest.raises(InvalidInput, match="behind the last fault"):
        FaultTrace.parse("9;0_1;1", num_steps=9)


links = st.tuples(st.integers(0, 5), st.integers(6, 9))
states = st.one_of(
    st.builds(LinkHealth, ends=links, delay_s=st.integers(0, 1000).map(lambda ms: ms / 1e3)),
    st.builds(LinkHealth, ends=links, bandwidth_bytes_per_s=st.integers(1, 10**6).map(lambda kbit: kbit * 125.0)),
    st.builds(LinkHealth, ends=links, is_dead=st.just(True)),
)


@given(st.lists(st.builds(Fault, step=st.integers(0, 50), health=states), max_size=6))
def test_a_printed_trace_is_read_back_as_it_was(faults: list[Fault]) -> None:
    trace = FaultTrace(faults=tuple(sorted(faults, key=lambda fault: fault.step)), num_steps=51)
    assert FaultTrace.parse(str(trace), num_steps=51) == trace


def test_each_link_is_as_bad_as_it_ever_gets_and_a_dead_one_is_dead() -> None:
    trace = FaultTrace.parse("1;0_1;0.02\n2;0_1;0.06\n3;0_1;0\n4;2_3;dead\n5;2_3;0.1\n6;1_2;0")
    found = at_worst(tiny_job(4), trace).cluster.link_health
    assert [(str(one), one.delay_s, one.is_dead) for one in found] == [("0_1", 0.06, False), ("2_3", 0.0, True)]


def test_without_a_trace_links_are_as_they_are() -> None:
    assert at_worst(tiny_job(4), None) == tiny_job(4)
