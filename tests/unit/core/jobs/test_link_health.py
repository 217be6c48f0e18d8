"""Links that differ from what their cluster says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.jobs.link_health import LinkHealth
from autotuner.core.wire import from_dict
from autotuner.errors import InvalidInput
from tests.builders import h100_cluster

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
        from_dict(LinkHealth, {"ends": ends, "delay_s": 0.1})
