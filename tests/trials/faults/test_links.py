from __future__ import annotations

from dataclasses import replace

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import Place
from tests.builders import cpu_cluster
from trials.faults.links import Links, pipeline_conditions

SLOW, DEAD = LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1), is_dead=True)
PIPELINE = Layout(pipeline_parallel_degree=4)
FIRST = Place(0, 0, 0, 0)


def links(*health: LinkHealth, num_cores: int = 4) -> Links:
    return Links.of(replace(cpu_cluster(num_cores), link_health=health))


def test_what_was_measured_is_slow_by_itself_and_what_is_assumed_is_emulated() -> None:
    assert not links(SLOW).are_healthy
    assert links(replace(SLOW, source="profile of cpu:4")).are_healthy


def test_a_fault_has_the_last_word_on_its_link_and_leaves_the_others_as_they_are() -> None:
    worse = links(SLOW).befallen_by([replace(SLOW, delay_s=0.1), DEAD])
    assert [found and found.delay_s for found in (worse.between(3, 2), worse.between(1, 2))] == [0.1, None]
    assert [found and found.is_dead for found in (worse.between(0, 1),)] == [True]


def test_a_ring_meets_links_of_its_neighbours_and_an_exchange_those_of_any_two() -> None:
    met = links(LinkHealth(ends=(0, 2), delay_s=0.02))
    assert met.in_ring((0, 1, 2, 3)) is None
    assert met.among((0, 1, 2, 3)) is not None
    around = links(LinkHealth(ends=(0, 3), delay_s=0.02))
    assert around.in_ring((0, 1, 2, 3)) is not None


def test_of_several_links_the_dead_one_counts_and_the_thinnest_bandwidth() -> None:
    thin = LinkHealth(ends=(1, 2), bandwidth_bytes_per_s=1e6)
    worst = links(SLOW, thin, DEAD).in_ring((0, 1, 2, 3))
    assert worst is not None
    assert (worst.is_dead, worst.bandwidth_bytes_per_s) == (True, 1e6)


def test_a_pipeline_meets_the_links_between_its_own_stages() -> None:
    found = pipeline_conditions(links(SLOW), PIPELINE, FIRST)
    assert {pair: condition.delay_s for pair, condition in found.of_pairs.items()} == {(2, 3): 0.06}


def test_rotated_stages_meet_the_link_elsewhere() -> None:
    rotated = replace(PIPELINE, stage_rotation=3)  # stage 0 lies at end 3, stage 3 at end 2: nobody sends over 2_3
    assert set(pipeline_conditions(links(SLOW), rotated, FIRST).of_pairs) == {(0, 3)}


def test_only_the_pipeline_that_crosses_a_link_between_nodes_meets_it() -> None:
    nodes = replace(cpu_cluster(2), num_nodes=2, link_health=(LinkHealth(ends=(0, 1), delay_s=0.06),))
    both = Layout(pipeline_parallel_degree=2, tensor_parallel_degree=2)
    assert set(pipeline_conditions(Links.of(nodes), both, Place(0, 0, 0, 1)).of_pairs) == {(0, 1)}
    assert Links.of(nodes).in_ring((0, 1)) is None


def test_a_trace_that_heals_a_link_leaves_nothing_to_emulate() -> None:
    trace = FaultTrace.parse("1;2_3;0.06\n2;2_3;0", num_steps=4)
    assert [links().befallen_by(stretch.links).are_healthy for stretch in trace.stretches()] == [True, False, True]
