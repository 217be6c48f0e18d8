"""What is written is what is read, links and their faults too."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.fault_trace import Fault, FaultTrace
from autotuner.core.link import LinkHealth, LinkNorm, LinkPoint, link_health_of, link_rounds
from autotuner.core.prediction import StepTime
from autotuner.core.trial import TrialFailure
from tests.builders import h100_cluster
from tests.properties.strategies import jobs, layouts, models

# ---------------------------------------------------------------- codec

every_second = st.floats(min_value=0, allow_infinity=False)
step_times = st.builds(StepTime, **dict.fromkeys([each.name for each in fields(StepTime)], every_second))
failures = st.builds(TrialFailure, message=st.text(), log_tail=st.text())


@given(layouts | models() | jobs | step_times | failures)
def test_a_value_survives_the_journey_as_text_and_as_objects(value: object) -> None:
    assert loads(type(value), dumps(value)) == value
    assert from_plain(type(value), to_plain(value)) == value


# ---------------------------------------------------------------- links

NUM_ENDS = 6

ends = st.lists(st.integers(0, NUM_ENDS - 1), min_size=2, max_size=2, unique=True).map(lambda two: (min(two), max(two)))
seconds = st.floats(0, 10, allow_nan=False)
rates = st.none() | st.floats(1.0, 1e12)
pairs = st.builds(LinkHealth, ends=ends, delay_s=seconds, jitter_s=seconds, bandwidth_bytes_per_s=rates)
classes = st.builds(LinkHealth, link_class=st.sampled_from(("intra_node", "inter_node")), delay_s=seconds)
states = (
    st.builds(LinkHealth, ends=ends, delay_s=st.integers(0, 10**6).map(lambda micros: micros / 1e6))
    | st.builds(LinkHealth, ends=ends, bandwidth_bytes_per_s=st.integers(1, 10**6).map(lambda mbit: mbit * 125_000.0))
    | st.builds(LinkHealth, ends=ends, is_dead=st.just(True))
)


@st.composite
def traces(draw: st.DrawFn) -> FaultTrace:
    """Faults of a few links in the order of their steps."""
    steps = sorted(draw(st.lists(st.integers(0, 50), max_size=8)))
    faults = tuple(Fault(step=step, health=draw(states)) for step in steps)
    return FaultTrace(faults=faults, num_steps=draw(st.integers(51, 80)))


@given(st.lists(pairs | classes, max_size=5))
def test_a_cluster_keeps_the_state_of_its_links_through_json(health: list[LinkHealth]) -> None:
    cluster = h100_cluster(NUM_ENDS, link_health=tuple(health))
    assert loads(Cluster, dumps(cluster)) == cluster


@given(traces())
def test_a_trace_is_read_as_it_is_printed(trace: FaultTrace) -> None:
    assert FaultTrace.parse(str(trace), num_steps=trace.num_steps) == trace
    assert loads(FaultTrace, dumps(trace)) == trace


@settings(max_examples=50)
@given(st.data())
def test_a_link_is_unhealthy_only_where_it_is_slower_than_the_middle(data: st.DataObject) -> None:
    every = [pair for round_ in link_rounds(NUM_ENDS) for pair in round_]
    delays, widths = (data.draw(st.lists(drawn, min_size=15, max_size=15)) for drawn in (seconds, st.floats(1e6, 1e11)))
    points = [
        LinkPoint(ends=pair, delay_s=delay, jitter_s=0.0, forth_bytes_per_s=width, back_bytes_per_s=width)
        for pair, delay, width in zip(every, delays, widths, strict=True)
    ]
    norm = LinkNorm.of(points)
    assert norm is not None
    found = link_health_of(points, bandwidth_bytes_per_s=40e9, source="drawn")
    assert len(found) <= 2 * (len(points) // 2)
    for health in found:
        assert not health.is_healthy
        assert health.bandwidth_bytes_per_s is None or health.bandwidth_bytes_per_s < 40e9
    late = sum(point.delay_s > norm.delay_s for point in points)
    assert sum(health.delay_s > 0 for health in found) <= late <= len(points) // 2
