"""Wiring: what two accelerators of a node reach each other over, and in which order a ring visits them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.jobs.wiring import PathKind, Port, Wiring
from autotuner.errors import InvalidInput
from tests.builders import h100_cluster

PAIRS = Wiring(
    name="pairs",
    nvlink_groups=((0, 1), (2, 3), (4, 5), (6, 7)),
    switches=((0, 1, 2, 3), (4, 5, 6, 7)),
    sockets=((0, 1, 2, 3), (4, 5, 6, 7)),
)
"""NVLink bridges between neighbours, a PCIe switch on each of two sockets."""


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [(0, 1, PathKind.NVLINK), (0, 2, PathKind.PCIE_SWITCH), (3, 4, PathKind.SOCKETS)],
)
def test_two_accelerators_take_the_shortest_way(one: int, other: int, kind: PathKind) -> None:
    assert PAIRS.path(one, other) is kind


def test_accelerators_of_one_socket_without_a_common_switch_meet_at_its_root() -> None:
    assert replace(PAIRS, switches=()).path(0, 2) is PathKind.SOCKET
    assert Wiring(name="one socket").path(0, 1) is PathKind.SOCKET


def test_a_ring_is_limited_by_its_longest_way() -> None:
    assert PAIRS.limiting_path((0, 1)) is PathKind.NVLINK
    assert PAIRS.limiting_path(range(4)) is PathKind.PCIE_SWITCH
    assert PAIRS.limiting_path(range(8)) is PathKind.SOCKETS
    assert PAIRS.limiting_path((5,)) is PathKind.NVLINK


def test_a_ring_crosses_to_another_socket_once_and_back() -> None:
    alternating = Wiring(name="alternating", sockets=((0, 2), (1, 3)))
    assert alternating.in_ring_order(range(4)) == [0, 2, 1, 3]


def test_what_nvlink_joins_as_a_whole_is_limited_by_no_socket() -> None:
    whole = replace(PAIRS, nvlink_groups=(tuple(range(8)),))
    assert whole.limiting_path(range(8)) is PathKind.NVLINK
    assert whole.is_joined_by_nvlink(8)
    assert not PAIRS.is_joined_by_nvlink(8)


def test_an_accelerator_is_in_one_group_alone() -> None:
    with pytest.raises(InvalidInput, match="in one group alone"):
        Wiring(name="twice", switches=((0, 1), (1, 2)))


def test_a_wiring_names_accelerators_that_a_node_has() -> None:
    with pytest.raises(InvalidInput, match=r"wiring.nvlink_groups = 4: .*nearest legal value: 3"):
        replace(h100_cluster(num_nodes=2).resized(accelerators_per_node=4), wiring=PAIRS)


def test_a_resized_node_keeps_the_wiring_of_its_first_accelerators() -> None:
    wired = replace(PAIRS, ports=(Port(name="mlx5_0", nearest=(0, 1)), Port(name="mlx5_1", nearest=(4, 5, 6, 7))))
    found = replace(h100_cluster(), wiring=wired).resized(accelerators_per_node=5).wiring
    assert found is not None
    assert (found.nvlink_groups, found.sockets) == (((0, 1), (2, 3), (4,)), ((0, 1, 2, 3), (4,)))
    assert [port.nearest for port in found.ports] == [(0, 1), (4,)]
