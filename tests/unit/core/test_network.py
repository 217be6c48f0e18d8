"""Tests of ``autotuner.core.network``."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.network import Network, PathKind, Port, Tier, Wiring, torus_lengths
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


def test_a_switch_has_whole_switches_below_it() -> None:
    tiers = (Tier(name="leaf", nodes_per_switch=4), Tier(name="spine", nodes_per_switch=10))
    with pytest.raises(InvalidInput, match="multiple of the 4 nodes"):
        Network(name="ours", tiers=tiers)


def test_a_tier_that_passes_up_more_than_it_gets_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"nearest legal value: 1.0"):
        Tier(name="leaf", nodes_per_switch=4, oversubscription=0.5)


def test_a_torus_joins_the_product_of_its_lengths() -> None:
    torus = Network(name="torus", torus=(2, 2))
    assert replace(h100_cluster(num_nodes=4), network=torus).network == torus
    with pytest.raises(InvalidInput, match="a torus of 2 x 2 joins 4 nodes"):
        replace(h100_cluster(num_nodes=8), network=torus)


def test_a_network_says_the_oversubscription_of_its_cluster() -> None:
    with pytest.raises(InvalidInput, match="must be left out"):
        replace(h100_cluster(num_nodes=4), network=Network(name="ours"), oversubscription=2.0)


@pytest.mark.parametrize(
    ("num_nodes", "lengths"), [(64, (4, 4, 4)), (128, (4, 4, 8)), (12, (2, 2, 3)), (7, ()), (4, ()), (1, ())]
)
def test_lengths_of_a_torus_are_as_equal_as_the_number_of_nodes_allows(
    num_nodes: int, lengths: tuple[int, ...]
) -> None:
    assert torus_lengths(num_nodes, 3) == lengths
    assert not lengths or math.prod(lengths) == num_nodes


def test_a_resized_cluster_has_a_torus_of_its_own_nodes() -> None:
    cluster = replace(h100_cluster(num_nodes=8), network=Network(name="torus", torus=(2, 2, 2)))
    sizes = (16, 4, 3, 1)
    networks = [cluster.resized(num_nodes=num_nodes).network for num_nodes in sizes]
    assert [network and network.torus for network in networks] == [(2, 2, 4), (2, 2), (3,), ()]


def test_a_resized_cluster_has_the_switches_that_it_had() -> None:
    network = Network(name="ours", tiers=(Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0),))
    assert replace(h100_cluster(num_nodes=8), network=network).resized(num_nodes=2).network == network
