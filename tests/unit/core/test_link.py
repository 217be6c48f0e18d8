"""Tests of ``autotuner.core.link``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from autotuner.core.codec import from_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.link import (
    Link,
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
from tests.builders import h100_cluster, link_point


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


def test_a_link_is_as_wide_as_its_slower_direction() -> None:
    assert link_point(0, 1, forth=2e9, back=1e9).bandwidth_bytes_per_s == 1e9


def test_ends_are_counted_from_0() -> None:
    assert num_ends([link_point(0, 1), link_point(1, 3)]) == 4
    assert num_ends([]) == 0


def test_a_link_that_passes_nothing_is_no_measurement() -> None:
    with pytest.raises(InvalidInput, match="forth_bytes_per_s"):
        LinkPoint(ends=(0, 1), delay_s=0.0, jitter_s=0.0, forth_bytes_per_s=0.0, back_bytes_per_s=1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bandwidth_bytes_per_s", 0.0),
        ("latency_s", -1e-6),
        ("start_s", -1e-6),
        ("ramp_s", -1e-6),
        ("efficiency", 0.0),
        ("efficiency", 1.1),
        ("multicast_efficiency", 1.1),
        ("congestion", -0.1),
    ],
)
def test_an_impossible_link_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(Link(name="none", bandwidth_bytes_per_s=1e9, latency_s=0.0), **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


TYPICAL = 50e-6


def pairs(num_ends: int, **slow: float) -> list[LinkPoint]:
    """Links of 50 µs, but for those named as ``l0_1``."""
    delays = {tuple(map(int, name[1:].split("_"))): delay for name, delay in slow.items()}
    return [link_point(*ends, delay=delays.get(ends, TYPICAL)) for ends in combinations(range(num_ends), 2)]


def ailing(points: list[LinkPoint], bandwidth: float = 1e9) -> Mapping[LinkEnds | None, LinkHealth]:
    found = link_health_of(points, bandwidth_bytes_per_s=bandwidth, source="measured 2026-11-22")
    return {health.ends: health for health in found}


def test_links_that_are_alike_say_nothing() -> None:
    assert not ailing(pairs(4))


def test_a_late_link_is_said_with_its_delay_on_top_of_the_others_and_its_source() -> None:
    (health,) = ailing(pairs(4, l2_3=0.03)).values()
    assert health == LinkHealth(ends=(2, 3), delay_s=0.03 - TYPICAL, jitter_s=2e-6, source="measured 2026-11-22")


def test_a_narrow_link_has_its_share_of_what_the_cluster_says_of_such_links() -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, back=0.25e9)]
    (health,) = ailing(points, bandwidth=40e9).values()
    assert health.bandwidth_bytes_per_s == pytest.approx(10e9)
    assert health.delay_s == 0.0


def test_a_node_of_four_whose_every_link_is_late_is_found() -> None:
    assert set(ailing(pairs(4, l0_1=0.03, l0_2=0.03, l0_3=0.031))) == {(0, 1), (0, 2), (0, 3)}


def test_two_links_of_six_are_found() -> None:
    assert set(ailing(pairs(4, l0_1=0.03, l1_2=0.06))) == {(0, 1), (1, 2)}


def test_one_of_three_links_is_found() -> None:
    assert set(ailing(pairs(3, l0_2=0.002))) == {(0, 2)}


def test_a_link_with_no_other_to_compare_with_is_not_judged() -> None:
    assert LinkNorm.of([link_point(0, 1, delay=1.0)]) is None
    assert not ailing([link_point(0, 1, delay=1.0)])


@pytest.mark.parametrize("delay", [TYPICAL, 1.7 * TYPICAL, 149e-6])
def test_a_difference_that_does_not_matter_is_no_ailment(delay: float) -> None:
    assert not ailing(pairs(4, l2_3=delay))


@pytest.mark.parametrize(("jitter", "is_late"), [(0.9e-3, True), (1.1e-3, False)])
def test_a_delay_within_the_jitter_of_its_own_messages_is_noise(jitter: float, is_late: bool) -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=1e-3 + TYPICAL, jitter=jitter)]
    assert bool(ailing(points)) == is_late


def test_two_tiers_of_switches_are_healthy() -> None:
    points = [
        link_point(
            low, high, delay=5e-6 if low // 4 == high // 4 else 9e-6, forth=4e9 if low // 4 == high // 4 else 3e9
        )
        for low, high in combinations(range(8), 2)
    ]
    assert not ailing(points)


def test_a_link_without_one_of_its_two_rails_is_narrow() -> None:
    points = [*pairs(4)[:-1], link_point(2, 3, delay=TYPICAL, forth=0.5e9)]
    assert set(ailing(points)) == {(2, 3)}


def test_noise_of_a_tenth_rings_no_alarm_in_a_thousand_measurements() -> None:
    noise = random.Random(0)
    for _ in range(1000):
        points = [
            link_point(*ends, delay=0.002 * noise.lognormvariate(0, 0.1), forth=1e9 * noise.lognormvariate(0, 0.1))
            for ends in combinations(range(4), 2)
        ]
        assert len(ailing(points)) == 0


SLOW = LinkHealth(ends=(1, 2), delay_s=0.06)


@pytest.mark.parametrize(
    ("said", "nearest"),
    [
        ({}, "inter_node"),
        ({"ends": (0, 1), "link_class": "inter_node"}, "inter_node"),
        ({"ends": (2, 1)}, "[1, 2]"),
        ({"ends": (1, 1)}, "[1, 2]"),
        ({"link_class": "inter_nodes"}, "inter_node"),
        ({"ends": (0, 1), "delay_s": -1.0}, None),
        ({"ends": (0, 1), "bandwidth_bytes_per_s": 0.0}, None),
    ],
)
def test_what_is_no_link_is_refused(said: dict[str, Any], nearest: str | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        LinkHealth(**said)
    assert nearest is None or str(refused.value.nearest) == nearest


def test_links_join_nodes_and_in_a_cluster_of_one_its_accelerators() -> None:
    nodes = h100_cluster(num_nodes=4, accelerators_per_node=8)
    assert (nodes.num_link_ends, nodes.link_end(17)) == (4, 2)
    node = h100_cluster(num_nodes=1, accelerators_per_node=8)
    assert (node.num_link_ends, node.link_end(5)) == (8, 5)


def test_a_link_between_ends_that_are_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(h100_cluster(num_nodes=2, accelerators_per_node=8), link_health=(SLOW,))
    assert str(refused.value.nearest) == "[0, 1]"


def test_what_is_known_of_a_link_stands_before_what_is_known_of_its_class() -> None:
    lossy = LinkHealth(link_class="inter_node", jitter_s=0.001)
    cluster = replace(h100_cluster(num_nodes=4, accelerators_per_node=8), link_health=(SLOW, lossy))
    assert cluster.health_between(2, 1) == SLOW
    assert cluster.health_between(0, 1) == lossy
    assert cluster.health_between(1, 1) is None


@pytest.mark.parametrize("field", ["delay_s", "jitter_s", "bandwidth_bytes_per_s"])
def test_a_link_that_takes_forever_is_called_dead(field: str) -> None:
    with pytest.raises(InvalidInput, match="must be finite"):
        LinkHealth(ends=(0, 1), **{field: float("inf")})  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [[], [1], [1, 2, 3]])
def test_a_link_of_json_has_two_ends(ends: list[int]) -> None:
    with pytest.raises(InvalidInput, match="must be a list of 2"):
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
def test_what_ails_a_link_is_said_in_a_line(health: LinkHealth, said: str) -> None:
    assert health_said(health, between_nodes=True) == said


def test_links_are_compared_with_what_they_typically_reach() -> None:
    points = [link_point(0, 1), link_point(0, 2), link_point(1, 2)]
    said = links_compared(points, between_nodes=False)
    assert said == (
        "3 links between 3 accelerators: typically 50 µs one way and 1 GB/s; unhealthy beyond 150 µs or below 556 MB/s"
    )
    assert links_judged([], points, between_nodes=False) == ["no link is unhealthy"]


def test_links_of_a_machine_that_has_other_ends_by_now_are_not_called_healthy() -> None:
    points = [link_point(*ends, delay=0.03 if ends == (0, 1) else 50e-6) for ends in combinations(range(4), 2)]
    assert links_judged([], points, between_nodes=False) == [
        "measured between 4 accelerators; there are others now, of which it says nothing"
    ]


def test_one_link_is_said_and_not_judged() -> None:
    said = links_compared([link_point(0, 1)], between_nodes=True)
    assert said.startswith("1 link between 2 nodes: 50 µs one way and 1 GB/s; fewer than 3 have too few others")
    assert links_judged([], [link_point(0, 1)], between_nodes=True) == []


def test_a_sample_of_links_is_said_to_be_one() -> None:
    points = [link_point(low, low + 1) for low in range(19)]
    assert links_compared(points, between_nodes=True).startswith(
        "19 of 190 links between 20 nodes, neighbours in a ring and a sample: typically"
    )


def test_where_there_is_no_link_nothing_is_said() -> None:
    assert links_compared([], between_nodes=True) == ""
