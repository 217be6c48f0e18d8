"""The links of a cluster one by one, as its page shows them."""

from __future__ import annotations

from itertools import combinations

from api.dashboard.views.link_matrix import LinkCell, link_matrix
from api.schemas import LinkList
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.link_health import LinkHealth
from autotuner.domain.jobs.link_norm import LinkNorm
from autotuner.domain.jobs.link_points import LinkPoint
from tests.builders import h100_cluster, link_point

MEASURED = LinkHealth(ends=(2, 3), delay_s=0.03, jitter_s=1e-3, source="measured 2026-11-22")


def listed(*points: LinkPoint, health: tuple[LinkHealth, ...] = (), nodes: int = 4) -> LinkList:
    at = 1.0 if points else None
    return LinkList(
        items=(),
        measured_at=at,
        num_nodes=nodes,
        one_by_one=points,
        one_by_one_at=at,
        one_by_one_nodes=nodes if points else 0,
        norm=LinkNorm.of(points),
        health=health,
    )


def four(*health: LinkHealth) -> Cluster:
    return h100_cluster(4, link_health=health)


def test_measured_links_are_ink_delays_above_the_diagonal_and_bandwidth_below() -> None:
    points = [link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2)]
    found = link_matrix(four(MEASURED), listed(*points, health=(MEASURED,)))
    assert found is not None
    assert found.ends == "nodes"
    assert found.rows[0][0] is None
    assert found.rows[0][1] == LinkCell(text="50 µs", look="measured")
    assert found.rows[1][0] == LinkCell(text="1 GB/s", look="measured")
    assert found.rows[2][3] == LinkCell(text="30 ms", look="measured", is_ailing=True)
    assert found.rows[3][2] == LinkCell(text="1 GB/s", look="measured")
    assert found.compared.startswith("6 links between 4 nodes: typically 50 µs")
    assert found.ailing == (("nodes 2 and 3: 30 ms late (± 1 ms), measured 2026-11-22", "measured"),)


def test_assumed_links_are_pencil_and_the_others_are_left_open() -> None:
    assumed = (LinkHealth(ends=(0, 1), delay_s=0.01), LinkHealth(ends=(1, 2), is_dead=True))
    found = link_matrix(four(*assumed), listed(health=assumed))
    assert found is not None
    assert found.rows[0][1] == LinkCell(text="+10 ms", look="predicted", is_ailing=True)
    assert found.rows[1][0] == found.rows[0][2] == LinkCell()
    assert found.rows[2][1] == LinkCell(text="dead", look="predicted", is_ailing=True)
    assert found.compared == ""


def test_a_class_of_links_is_told_in_words_alone() -> None:
    every = LinkHealth(link_class="inter_node", bandwidth_bytes_per_s=1e9)
    found = link_matrix(four(every), listed(health=(every,)))
    assert found is not None
    assert found.rows == ()
    assert found.ailing == (("all links between nodes: 1 GB/s, assumed", "predicted"),)


def test_many_nodes_are_told_in_words_alone() -> None:
    points = [link_point(low, low + 1) for low in range(19)]
    found = link_matrix(h100_cluster(20), listed(*points, nodes=20))
    assert found is not None
    assert (found.rows, found.ailing) == ((), ())
    assert "neighbours in a ring and a sample" in found.compared


def test_where_nothing_is_known_of_single_links_nothing_is_shown() -> None:
    assert link_matrix(four(), listed()) is None
