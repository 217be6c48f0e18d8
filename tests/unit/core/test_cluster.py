"""Accelerators, links and which of them a group crosses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkHealth
from tests.builders import cpu_cluster, h100_cluster


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


def test_world_size_counts_all_nodes() -> None:
    assert h100_cluster(num_nodes=4).world_size == 32


@pytest.mark.parametrize(
    ("field", "value"), [("num_nodes", 0), ("accelerators_per_node", 0), ("oversubscription", 0.5)]
)
def test_an_impossible_cluster_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(h100_cluster(), **{field: value})
    assert caught.value.field == field


def test_whether_groups_cross_nodes_is_asked_of_one_or_of_a_column() -> None:
    cluster = h100_cluster()
    assert cluster.crosses_nodes(8, 1) is False
    assert cluster.crosses_nodes(np.array([8, 16, 2]), np.array([1, 1, 8])).tolist() == [False, True, True]


def test_groups_that_do_not_divide_a_node_cross_the_border_of_two_somewhere() -> None:
    assert h100_cluster(num_nodes=3).crosses_nodes(np.array([3, 4, 6]), np.array([1, 1, 1])).tolist() == [
        True,
        False,
        True,
    ]
    assert not h100_cluster(num_nodes=1).crosses_nodes(3, 2)


@pytest.mark.parametrize(
    ("num_nodes", "joined"),
    [(1, 4), (2, 8), (18, 72), (32, 64), (36, 72), (24, 48), (128, 64), (19, 72), (25, 72)],
)
def test_a_job_that_outgrows_an_nvlink_domain_gets_equal_parts_of_several(num_nodes: int, joined: int) -> None:
    cluster = h100_cluster(num_nodes, accelerators_per_node=4, nvlink_domain=72)
    assert cluster.accelerators_per_domain == joined


def test_without_a_larger_domain_nvlink_joins_a_node() -> None:
    assert h100_cluster(num_nodes=32).accelerators_per_domain == 8


def test_a_domain_smaller_than_a_node_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        h100_cluster(nvlink_domain=4)
    assert (caught.value.field, caught.value.nearest) == ("nvlink_domain", 8)


# ---------------------------------------------------------------------- other sizes
AILING = (LinkHealth(ends=(0, 1), delay_s=0.01), LinkHealth(ends=(2, 3), delay_s=0.02))


def test_a_smaller_cluster_keeps_the_health_of_the_links_that_it_still_has() -> None:
    nodes = h100_cluster(8, link_health=(*AILING, LinkHealth(link_class="inter_node", delay_s=0.03)))
    assert nodes.resized(num_nodes=3).link_health == (AILING[0], nodes.link_health[2])
    assert nodes.resized(num_nodes=16).link_health == nodes.link_health


def test_links_between_nodes_are_none_between_the_accelerators_of_one() -> None:
    assert h100_cluster(8, link_health=AILING).resized(num_nodes=1).link_health == ()
    assert cpu_cluster(4, link_health=AILING).resized(num_nodes=4).link_health == ()


def test_fewer_accelerators_of_one_node_keep_their_links() -> None:
    assert cpu_cluster(4, link_health=AILING).resized(accelerators_per_node=2).link_health == (AILING[0],)
