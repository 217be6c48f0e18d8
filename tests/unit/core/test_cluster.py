"""Accelerators, links between them, and which of them a group crosses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.link import LinkHealth
from autotuner.core.network import Network, PathKind, Port, Tier, Wiring, torus_lengths
from tests.builders import cpu_cluster, h100, h100_cluster


def test_hardware_without_a_format_does_not_offer_it() -> None:
    assert cpu_cluster().accelerator.precisions == (Precision.FP32, Precision.BF16, Precision.FP8_EMULATED)
    assert h100().precisions == tuple(p for p in Precision if p != Precision.NVFP4)


@pytest.mark.parametrize("precision", list(Precision))
def test_each_format_has_its_own_peak(precision: Precision) -> None:
    peaks = {Precision.FP32: 67e12, Precision.BF16: 989.4e12, Precision.FP8: 1978.9e12}
    peaks[Precision.FP8_EMULATED] = peaks[Precision.BF16]  # what its products are multiplied in
    peaks[Precision.NVFP4] = 9000e12
    assert h100(fp4_flop_per_s=9000e12).peak_flop_per_s(precision) == peaks[precision]


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
    assert h100_cluster(num_nodes=3).crosses_nodes(np.array([3, 4, 6]), np.array([1, 1, 1])).tolist() == [
        True,
        False,
        True,
    ]
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
    with pytest.raises(InvalidInput, match="in one group alone"):
        Wiring(name="twice", switches=((0, 1), (1, 2)))
    with pytest.raises(InvalidInput, match=r"wiring.nvlink_groups = 4: .*nearest legal value: 3"):
        replace(h100_cluster(num_nodes=2).resized(accelerators_per_node=4), wiring=PAIRS)
    tiers = (Tier(name="leaf", nodes_per_switch=4), Tier(name="spine", nodes_per_switch=10))
    with pytest.raises(InvalidInput, match="multiple of the 4 nodes"):
        Network(name="ours", tiers=tiers)
    with pytest.raises(InvalidInput, match=r"nearest legal value: 1.0"):
        Tier(name="leaf", nodes_per_switch=4, oversubscription=0.5)
    with pytest.raises(InvalidInput, match="must be left out"):
        replace(h100_cluster(num_nodes=4), network=Network(name="ours"), oversubscription=2.0)
    torus = Network(name="torus", torus=(2, 2))
    assert replace(h100_cluster(num_nodes=4), network=torus).network == torus
    with pytest.raises(InvalidInput, match="a torus of 2 x 2 joins 4 nodes"):
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
