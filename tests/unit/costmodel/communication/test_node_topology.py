"""Groups inside nodes that NVLink does not join as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.cluster import Cluster
from autotuner.core.columns import Integers
from autotuner.core.layout import Layout
from autotuner.core.network import Wiring
from autotuner.costmodel.communication.layout_groups import group_of
from autotuner.costmodel.communication.node_topology import PCIE_EFFICIENCY, WiredNode, wired_node
from autotuner.search.explain.routes import routes
from tests.builders import big_job, h100_cluster

PAIRS = Wiring(
    name="pairs",
    nvlink_groups=((0, 1), (2, 3), (4, 5), (6, 7)),
    sockets=((0, 1, 2, 3), (4, 5, 6, 7)),
    pcie_bandwidth_bytes_per_s=50e9,
    socket_bandwidth_bytes_per_s=20e9,
)


def _column(*numbers: int) -> Integers:
    return np.array(numbers, dtype=np.int64)


def _found(cluster: Cluster, ranks: tuple[int, ...], strides: tuple[int, ...]) -> WiredNode:
    found = wired_node(_column(*ranks), _column(*strides), cluster)
    assert found is not None
    return found


def _nvlink_rate(cluster: Cluster) -> float:
    return cluster.intra_node_link.efficiency * cluster.intra_node_link.bandwidth_bytes_per_s


def test_a_pair_that_nvlink_joins_is_as_fast_as_before_and_others_are_not() -> None:
    cluster = replace(h100_cluster(), wiring=PAIRS)
    found = _found(cluster, (1, 2, 4, 8), (1, 1, 1, 1))
    rate = _nvlink_rate(cluster)
    assert found.ring_slowdown == pytest.approx([1, 1, rate / (PCIE_EFFICIENCY * 50e9), rate / 20e9])
    assert found.delay_s.astype(bool).tolist() == [False, False, True, True]


def test_groups_that_cross_to_the_other_socket_at_once_share_its_link() -> None:
    cluster = replace(h100_cluster(), wiring=PAIRS)
    found = _found(cluster, (2, 2, 4, 8), (4, 1, 2, 1))
    rate = _nvlink_rate(cluster)
    assert found.ring_slowdown == pytest.approx([4 * rate / 20e9, 1, 2 * rate / 20e9, rate / 20e9])


def test_an_all_to_all_puts_more_between_sockets_than_a_ring() -> None:
    cluster = replace(h100_cluster(), wiring=PAIRS)
    found = _found(cluster, (8,), (1,))
    sent = 4 * 4 / 7  # each of four ranks of a socket sends a seventh to each of the other four
    assert found.pair_slowdown == pytest.approx(sent * found.ring_slowdown)


def test_accelerators_below_one_switch_share_its_way_up() -> None:
    wiring = Wiring(name="switches", nvlink_groups=(), switches=((0, 1), (2, 3)), pcie_bandwidth_bytes_per_s=50e9)
    cluster = replace(h100_cluster(), wiring=wiring, accelerators_per_node=4)
    beside, across = _found(cluster, (2, 2), (1, 2)).ring_slowdown
    assert across == pytest.approx(2 * beside)


def test_what_a_link_joins_as_a_whole_is_predicted_as_without_a_wiring() -> None:
    whole = Wiring(name="whole", nvlink_groups=(tuple(range(8)),), sockets=((0, 1, 2, 3), (4, 5, 6, 7)))
    assert wired_node(_column(8), _column(1), replace(h100_cluster(), wiring=whole)) is None


def test_collectives_inside_such_a_node_take_longer_and_those_of_a_pair_do_not() -> None:
    plain = h100_cluster(num_nodes=2)
    ranks, strides = _column(2, 8, 16), _column(1, 1, 1)
    before, after = (group_of(ranks, strides, each) for each in (plain, replace(plain, wiring=PAIRS)))
    slower = after.ring_s_per_byte / before.ring_s_per_byte
    assert slower[0] == 1.0
    assert slower[1] == pytest.approx(_nvlink_rate(plain) / 20e9)
    assert slower[2] > 1.0
    assert (after.ring_latency_s >= before.ring_latency_s).all()
    assert (after.all_to_all_s_per_byte() >= before.all_to_all_s_per_byte()).all()


def test_the_limiting_link_of_a_group_is_the_one_that_its_node_has() -> None:
    cluster = replace(h100_cluster(num_nodes=2), wiring=PAIRS)
    names = [cluster.link_for(size, 1).name for size in (2, 4, 8, 16)]
    assert names == ["nvlink4", "the root of one socket's PCIe", "the link between sockets", "ndr400"]


def test_the_route_of_an_axis_inside_such_a_node_names_the_way_that_limits_it() -> None:
    wired = replace(h100_cluster(num_nodes=2), wiring=PAIRS)
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=2)
    tensor, _ = routes(layout, replace(big_job(2), cluster=wired))
    assert tensor.limiting_link == "the link between sockets"
