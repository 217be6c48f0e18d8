"""Clusters and what ails their links."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import Precision
from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import Fault, FaultTrace, at_worst
from autotuner.core.link import (
    LinkEnds,
    LinkHealth,
    LinkNorm,
    LinkPoint,
    health_said,
    link_health_of,
    link_rounds,
    links_compared,
    links_judged,
    num_ends,
)
from autotuner.core.network import Network, PathKind, Port, Tier, Wiring, torus_lengths
from tests.builders import cpu_cluster, h100, h100_cluster, link_point, tiny_job


def test_hardware_without_a_format_does_not_offer_it() -> None:
    assert cpu_cluster().accelerator.precisions == (Precision.FP32, Precision.BF16, Precision.FP8_EMULATED)
    assert h100().precisions == tuple(p for p in Precision if p != Precision.NVFP4)


def test_each_format_has_its_own_peak_and_emulated_fp8_that_of_bf16() -> None:
    peaks = [h100(fp4_flop_per_s=9000e12).peak_flop_per_s(precision) for precision in Precision]
    assert peaks == [67e12, 989.4e12, 1978.9e12, 989.4e12, 9000e12]


def test_the_reference_of_a_gpu_is_its_bf16_peak_or_fp32_without_bf16_and_of_a_core_its_fp32_rate() -> None:
    assert h100().reference_flop_per_s == h100().bf16_flop_per_s
    assert h100(bf16_flop_per_s=0.0, fp8_flop_per_s=0.0).reference_flop_per_s == h100().fp32_flop_per_s
    core = cpu_cluster().accelerator
    assert core.reference_flop_per_s == core.fp32_flop_per_s


@pytest.mark.parametrize(
    ("group_size", "stride", "link"),
    [
        (1, 1, "nvlink4"),
        (8, 1, "nvlink4"),
        (2, 4, "nvlink4"),
        (4, 2, "nvlink4"),
        (16, 1, "ndr400"),
        (2, 8, "ndr400"),
        (4, 4, "ndr400"),
    ],
)
def test_a_group_that_reaches_past_its_node_crosses_the_network(group_size: int, stride: int, link: str) -> None:
    assert h100_cluster().link_for(group_size, stride).name == link


def test_a_group_that_does_not_divide_a_node_crosses_a_border_asked_of_one_or_of_a_column() -> None:
    cluster = h100_cluster()
    assert cluster.crosses_nodes(8, 1) is False
    assert cluster.crosses_nodes(np.array([8, 16, 2]), np.array([1, 1, 8])).tolist() == [False, True, True]
    three = h100_cluster(num_nodes=3)
    assert three.crosses_nodes(np.array([3, 4, 6]), np.array([1, 1, 1])).tolist() == [True, False, True]
    assert not h100_cluster(num_nodes=1).crosses_nodes(3, 2)


@pytest.mark.parametrize(
    ("num_nodes", "joined"), [(1, 4), (2, 8), (18, 72), (32, 64), (36, 72), (24, 48), (128, 64), (19, 72), (25, 72)]
)
def test_a_job_that_outgrows_an_nvlink_domain_gets_equal_parts_of_several(num_nodes: int, joined: int) -> None:
    cluster = h100_cluster(num_nodes, accelerators_per_node=4, nvlink_domain=72)
    assert cluster.accelerators_per_domain == joined


def test_without_a_larger_domain_nvlink_joins_a_node() -> None:
    assert h100_cluster(num_nodes=32).accelerators_per_domain == 8


# ---------------------------------------------------------------------- other sizes
AILING = (LinkHealth(ends=(0, 1), delay_s=0.01), LinkHealth(ends=(2, 3), delay_s=0.02))


def test_a_cluster_of_another_size_keeps_the_health_of_the_links_that_it_still_has() -> None:
    nodes = h100_cluster(8, link_health=(*AILING, LinkHealth(link_class="inter_node", delay_s=0.03)))
    assert nodes.resized(num_nodes=3).link_health == (AILING[0], nodes.link_health[2])
    assert nodes.resized(num_nodes=16).link_health == nodes.link_health
    assert h100_cluster(8, link_health=AILING).resized(num_nodes=1).link_health == ()
    assert cpu_cluster(4, link_health=AILING).resized(num_nodes=4).link_health == ()
    assert cpu_cluster(4, link_health=AILING).resized(accelerators_per_node=2).link_health == (AILING[0],)


PAIRS = Wiring(
    name="pairs",
    nvlink_groups=((0, 1), (2, 3), (4, 5), (6, 7)),
    switches=((0, 1, 2, 3), (4, 5, 6, 7)),
    sockets=((0, 1, 2, 3), (4, 5, 6, 7)),
)
"""NVLink bridges between neighbours, a PCIe switch on each of two sockets."""


@pytest.mark.parametrize(
    ("one", "other", "kind"), [(0, 1, PathKind.NVLINK), (0, 2, PathKind.PCIE_SWITCH), (3, 4, PathKind.SOCKETS)]
)
def test_two_accelerators_take_the_shortest_way(one: int, other: int, kind: PathKind) -> None:
    assert PAIRS.path(one, other) is kind


def test_accelerators_take_the_shortest_way_or_meet_at_the_root_of_their_socket() -> None:
    assert replace(PAIRS, switches=()).path(0, 2) is PathKind.SOCKET
    assert Wiring(name="one socket").path(0, 1) is PathKind.SOCKET


def test_a_ring_is_limited_by_its_longest_way_and_crosses_to_another_socket_once_and_back() -> None:
    assert PAIRS.limiting_path((0, 1)) is PathKind.NVLINK
    assert PAIRS.limiting_path(range(4)) is PathKind.PCIE_SWITCH
    assert PAIRS.limiting_path(range(8)) is PathKind.SOCKETS
    assert PAIRS.limiting_path((5,)) is PathKind.NVLINK
    alternating = Wiring(name="alternating", sockets=((0, 2), (1, 3)))
    assert alternating.in_ring_order(range(4)) == [0, 2, 1, 3]
    whole = replace(PAIRS, nvlink_groups=(tuple(range(8)),))
    assert whole.limiting_path(range(8)) is PathKind.NVLINK
    assert whole.is_joined_by_nvlink(8)
    assert not PAIRS.is_joined_by_nvlink(8)


def test_a_wiring_or_network_that_no_cluster_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="in one group only"):
        Wiring(name="twice", switches=((0, 1), (1, 2)))
    with pytest.raises(InvalidInput, match=r"wiring.nvlink_groups = 4: .*nearest legal value: 3"):
        replace(h100_cluster(num_nodes=2).resized(accelerators_per_node=4), wiring=PAIRS)
    tiers = (Tier(name="leaf", nodes_per_switch=4), Tier(name="spine", nodes_per_switch=10))
    with pytest.raises(InvalidInput, match="larger multiple of 4"):
        Network(name="ours", tiers=tiers)
    with pytest.raises(InvalidInput, match=r"nearest legal value: 1.0"):
        Tier(name="leaf", nodes_per_switch=4, oversubscription=0.5)
    with pytest.raises(InvalidInput, match="must be left out"):
        replace(h100_cluster(num_nodes=4), network=Network(name="ours"), oversubscription=2.0)
    torus = Network(name="torus", torus=(2, 2))
    assert replace(h100_cluster(num_nodes=4), network=torus).network == torus
    with pytest.raises(InvalidInput, match="must be 4, because a torus of 2 x 2 joins that many nodes"):
        replace(h100_cluster(num_nodes=8), network=torus)


def test_a_resized_node_keeps_the_wiring_of_its_first_accelerators() -> None:
    wired = replace(PAIRS, ports=(Port(name="mlx5_0", nearest=(0, 1)), Port(name="mlx5_1", nearest=(4, 5, 6, 7))))
    found = replace(h100_cluster(), wiring=wired).resized(accelerators_per_node=5).wiring
    assert found is not None
    assert (found.nvlink_groups, found.sockets) == (((0, 1), (2, 3), (4,)), ((0, 1, 2, 3), (4,)))
    assert [port.nearest for port in found.ports] == [(0, 1), (4,)]


@pytest.mark.parametrize(
    ("num_nodes", "lengths"), [(64, (4, 4, 4)), (128, (4, 4, 8)), (12, (2, 2, 3)), (7, ()), (4, ()), (1, ())]
)
def test_lengths_of_a_torus_are_as_equal_as_the_number_of_nodes_allows(
    num_nodes: int, lengths: tuple[int, ...]
) -> None:
    assert torus_lengths(num_nodes, 3) == lengths
    assert not lengths or math.prod(lengths) == num_nodes


def test_a_resized_cluster_has_a_torus_of_its_own_nodes_and_the_switches_that_it_had() -> None:
    cluster = replace(h100_cluster(num_nodes=8), network=Network(name="torus", torus=(2, 2, 2)))
    sizes = (16, 4, 3, 1)
    networks = [cluster.resized(num_nodes=num_nodes).network for num_nodes in sizes]
    assert [network and network.torus for network in networks] == [(2, 2, 4), (2, 2), (3,), ()]
    network = Network(name="ours", tiers=(Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0),))
    assert replace(h100_cluster(num_nodes=8), network=network).resized(num_nodes=2).network == network


@pytest.mark.parametrize("ends", range(17))
def test_up_to_16_ends_measure_every_pair_once_in_the_fewest_rounds(ends: int) -> None:
    rounds = link_rounds(ends)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(ends), 2))
    assert len(rounds) == (0 if ends < 2 else ends - 1 + ends % 2)


@pytest.mark.parametrize("ends", [17, 18, 63, 64, 257, 1024])
def test_more_ends_measure_their_neighbours_and_others_in_15_rounds(ends: int) -> None:
    rounds = link_rounds(ends)
    pairs = [pair for each in rounds for pair in each]
    assert len(rounds) == 15
    assert len(pairs) == len(set(pairs)) > 5 * ends
    assert {(low, low + 1) for low in range(ends - 1)} | {(0, ends - 1)} <= set(pairs)
    assert {end for pair in pairs for end in pair} == set(range(ends))


@pytest.mark.parametrize("ends", [2, 3, 8, 15, 16, 17, 18, 100])
def test_no_end_meets_two_others_in_a_round(ends: int) -> None:
    for pairs in link_rounds(ends):
        met = [end for pair in pairs for end in pair]
        assert len(met) == len(set(met))
        assert all(0 <= low < high < ends for low, high in pairs)


def test_a_link_is_as_wide_as_its_slower_direction_and_its_ends_are_counted_from_0() -> None:
    assert link_point(0, 1, forth=2e9, back=1e9).bandwidth_bytes_per_s == 1e9
    assert num_ends([link_point(0, 1), link_point(1, 3)]) == 4
    assert num_ends([]) == 0


TYPICAL = 50e-6


def pairs(num_ends: int, **slow: float) -> list[LinkPoint]:
    """Links of 50 µs, but for those named as ``l0_1``."""
    delays = {tuple(map(int, name[1:].split("_"))): delay for name, delay in slow.items()}
    return [link_point(*ends, delay=delays.get(ends, TYPICAL)) for ends in combinations(range(num_ends), 2)]


def ailing(points: list[LinkPoint], bandwidth: float = 1e9) -> Mapping[LinkEnds | None, LinkHealth]:
    found = link_health_of(points, bandwidth_bytes_per_s=bandwidth, source="measured 2026-11-22")
    return {health.ends: health for health in found}


def test_links_that_are_alike_or_have_no_other_to_compare_with_say_nothing() -> None:
    assert not ailing(pairs(4))
    assert LinkNorm.of([link_point(0, 1, delay=1.0)]) is None
    assert not ailing([link_point(0, 1, delay=1.0)])
    points = [
        link_point(
            low, high, delay=5e-6 if low // 4 == high // 4 else 9e-6, forth=4e9 if low // 4 == high // 4 else 3e9
        )
        for low, high in combinations(range(8), 2)
    ]
    assert not ailing(points)


def test_late_and_narrow_links_are_found_beside_the_others_and_what_they_should_be() -> None:
    (health,) = ailing(pairs(4, l2_3=0.03)).values()
    assert health == LinkHealth(ends=(2, 3), delay_s=0.03 - TYPICAL, jitter_s=2e-6, source="measured 2026-11-22")
    assert set(ailing(pairs(4, l0_1=0.03, l0_2=0.03, l0_3=0.031))) == {(0, 1), (0, 2), (0, 3)}
    assert set(ailing(pairs(4, l0_1=0.03, l1_2=0.06))) == {(0, 1), (1, 2)}
    assert set(ailing(pairs(3, l0_2=0.002))) == {(0, 2)}
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, back=0.25e9)]
    (health,) = ailing(points, bandwidth=40e9).values()
    assert health.bandwidth_bytes_per_s == pytest.approx(10e9)
    assert health.delay_s == 0.0
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, forth=0.5e9)]
    assert set(ailing(points)) == {(2, 3)}


@pytest.mark.parametrize("delay", [TYPICAL, 1.7 * TYPICAL, 149e-6])
def test_a_difference_that_does_not_matter_is_no_ailment(delay: float) -> None:
    assert not ailing(pairs(4, l2_3=delay))


@pytest.mark.parametrize(("jitter", "is_late"), [(0.9e-3, True), (1.1e-3, False)])
def test_a_delay_within_the_jitter_of_its_own_messages_is_noise(jitter: float, is_late: bool) -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=1e-3 + TYPICAL, jitter=jitter)]
    assert bool(ailing(points)) == is_late


def test_noise_of_a_tenth_rings_no_alarm_in_a_thousand_measurements() -> None:
    noise = random.Random(0)
    for _ in range(1000):
        points = [
            link_point(*ends, delay=0.002 * noise.lognormvariate(0, 0.1), forth=1e9 * noise.lognormvariate(0, 0.1))
            for ends in combinations(range(4), 2)
        ]
        assert len(ailing(points)) == 0


SLOW = LinkHealth(ends=(1, 2), delay_s=0.06)


def test_links_join_nodes_and_in_a_cluster_of_one_its_accelerators() -> None:
    nodes = h100_cluster(num_nodes=4, accelerators_per_node=8)
    assert (nodes.num_link_ends, nodes.link_end(17)) == (4, 2)
    node = h100_cluster(num_nodes=1, accelerators_per_node=8)
    assert (node.num_link_ends, node.link_end(5)) == (8, 5)
    with pytest.raises(InvalidInput) as refused:
        replace(h100_cluster(num_nodes=2, accelerators_per_node=8), link_health=(SLOW,))
    assert str(refused.value.nearest) == "[0, 1]"


def test_the_health_of_one_link_overrides_the_health_of_its_class() -> None:
    lossy = LinkHealth(link_class="inter_node", jitter_s=0.001)
    cluster = replace(h100_cluster(num_nodes=4, accelerators_per_node=8), link_health=(SLOW, lossy))
    assert cluster.health_between(2, 1) == SLOW
    assert cluster.health_between(0, 1) == lossy
    assert cluster.health_between(1, 1) is None


@pytest.mark.parametrize("ends", [[], [1], [1, 2, 3]])
def test_a_link_of_json_has_two_ends(ends: list[int]) -> None:
    with pytest.raises(InvalidInput, match="must be a list of 2 items"):
        from_plain(LinkHealth, {"ends": ends, "delay_s": 0.1})


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (
            LinkHealth(ends=(2, 3), delay_s=0.03, jitter_s=0.0012, source="measured 2026-11-22"),
            "nodes 2 and 3: 30 ms late (± 1.2 ms), measured 2026-11-22",
        ),
        (LinkHealth(ends=(0, 1), bandwidth_bytes_per_s=25e6), "nodes 0 and 1: 25 MB/s, assumed"),
        (LinkHealth(ends=(0, 1), is_dead=True), "nodes 0 and 1: dead, assumed"),
        (LinkHealth(ends=(0, 1), jitter_s=0.001), "nodes 0 and 1: ± 1 ms, assumed"),
        (LinkHealth(ends=(0, 1)), "nodes 0 and 1: healthy, assumed"),
        (LinkHealth(link_class="inter_node", delay_s=0.001), "all links between nodes: 1 ms late, assumed"),
        (LinkHealth(link_class="intra_node", delay_s=0.001), "all links within a node: 1 ms late, assumed"),
    ],
)
def test_the_state_of_a_degraded_link_is_one_line(health: LinkHealth, said: str) -> None:
    assert health_said(health, between_nodes=True) == said


def test_links_are_compared_with_what_they_typically_reach_and_judged_where_there_are_enough_of_them() -> None:
    points = [link_point(0, 1), link_point(0, 2), link_point(1, 2)]
    said = links_compared(points, between_nodes=False)
    assert said == (
        "3 links between 3 accelerators: typically 50 µs one way and 1 GB/s; unhealthy beyond 150 µs or below 556 MB/s"
    )
    assert links_judged([], points, between_nodes=False) == ["no link is unhealthy"]
    points = [link_point(*ends, delay=0.03 if ends == (0, 1) else 50e-6) for ends in combinations(range(4), 2)]
    assert links_judged([], points, between_nodes=False) == [
        "measured between 4 accelerators; the cluster has others now, so the measurement does not say which links "
        "are unhealthy"
    ]
    said = links_compared([link_point(0, 1)], between_nodes=True)
    assert said.startswith("1 link between 2 nodes: 50 µs one way and 1 GB/s; fewer than 3 links are too few")
    assert links_judged([], [link_point(0, 1)], between_nodes=True) == []
    points = [link_point(low, low + 1) for low in range(19)]
    assert links_compared(points, between_nodes=True).startswith(
        "19 of 190 links between 20 nodes, neighbours in a ring and a sample: typically"
    )
    assert links_compared([], between_nodes=True) == ""


def test_a_trace_is_cut_where_a_link_changes_and_lasts_as_long_after_its_last_fault_as_before() -> None:
    trace = FaultTrace.parse("7;2_3;0.06\n30;2_3;0", num_steps=40)
    slow = (LinkHealth(ends=(2, 3), delay_s=0.06),)
    cut = [(one.first_step, one.num_steps, one.links) for one in trace.stretches()]
    assert cut == [(0, 7, ()), (7, 23, slow), (30, 10, ())]
    assert FaultTrace.parse("7;2_3;0.06").num_steps == 14
    assert FaultTrace.parse("").num_steps == 1


def test_a_line_of_a_trace_names_links_rates_and_deaths_and_faults_in_order() -> None:
    trace = FaultTrace.parse("# episode\n 3; 1_0, 6_7; 200mbit\n5;0_1;inf")
    assert [str(fault) for fault in trace.faults] == ["3;0_1;200mbit", "3;6_7;200mbit", "5;0_1;dead"]
    assert trace.ends == ((0, 1), (6, 7))
    assert {link.bandwidth_bytes_per_s for link in trace.links_at(3)} == {25e6}
    with pytest.raises(InvalidInput, match="in the order of their steps"):
        FaultTrace.parse("9;0_1;1\n3;0_1;0")
    with pytest.raises(InvalidInput, match="above the step of the last fault"):
        FaultTrace.parse("9;0_1;1", num_steps=9)
    trace = FaultTrace.parse("1;0_1;0.02\n2;0_1;0.06\n3;0_1;0\n4;2_3;dead\n5;2_3;0.1\n6;1_2;0")
    found = at_worst(tiny_job(4), trace).cluster.link_health
    assert [(str(one), one.delay_s, one.is_dead) for one in found] == [("0_1", 0.06, False), ("2_3", 0.0, True)]
    assert at_worst(tiny_job(4), None) == tiny_job(4)


@pytest.mark.parametrize("line", ["7;2_3", "7;2-3;0.06", "x;2_3;0.06", "7;2_3;slow", "7;2_3;-1", "7;3_3;0.06"])
def test_a_line_that_is_no_fault_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        FaultTrace.parse(line)


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
