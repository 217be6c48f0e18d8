"""Words of links."""

from __future__ import annotations

from itertools import combinations

import pytest

from autotuner.core.jobs.link_health import LinkHealth
from autotuner.core.jobs.link_words import health_said, links_compared, links_judged
from tests.builders import link_point


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
