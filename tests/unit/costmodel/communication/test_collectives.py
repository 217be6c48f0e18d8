"""Wire times against the formulas of each algorithm, and groups against the cluster's own answer."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.costmodel.columns import Floats
from autotuner.costmodel.communication import collectives
from autotuner.costmodel.communication.process_groups import MULTICAST_S, OWN_SHARD_COST, Group, group_of
from autotuner.domain.cluster import Cluster, Link
from tests.builders import h100_cluster

NVLINK = 400e9
PORT = 40e9


def link(bandwidth_bytes_per_s: float, **changes: float) -> Link:
    """A link of which collectives get all, with no latency unless it is given."""
    return Link(
        name="ideal", bandwidth_bytes_per_s=bandwidth_bytes_per_s, **{"latency_s": 0, "efficiency": 1, **changes}
    )


def silent(num_nodes: int = 8, oversubscription: float = 1.0, **of_the_port: float) -> Cluster:
    """A cluster whose links have no latency, so that bytes over bandwidth is all."""
    return h100_cluster(
        num_nodes,
        intra_node_link=link(NVLINK),
        inter_node_link=link(PORT, **of_the_port),
        oversubscription=oversubscription,
    )


def group(num_ranks: int, stride: int = 1, cluster: Cluster | None = None) -> Group:
    return group_of(np.array([num_ranks]), np.array([stride]), cluster or silent())


def seconds(values: Floats) -> float:
    return float(values[0])


def rounded(value: float) -> object:
    """Equal but for the order of products."""
    return pytest.approx(value, rel=1e-12)


ONE_GB = np.array([1e9])
NOTHING = np.array([0.0])


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_ring_passes_all_shares_but_one_and_copies_that(num_ranks: int) -> None:
    shares = num_ranks - 1 + OWN_SHARD_COST
    assert seconds(collectives.all_gather_s(ONE_GB, group(num_ranks))) == rounded(shares / num_ranks * 1e9 / NVLINK)


def test_without_latency_a_ring_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    eight = group(8)
    both = collectives.reduce_scatter_s(ONE_GB, eight) + collectives.all_gather_s(ONE_GB, eight)
    assert seconds(collectives.all_reduce_s(ONE_GB, eight)) == rounded(seconds(both))


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_s"])
def test_one_rank_alone_costs_nothing(collective: str) -> None:
    busy = link(NVLINK, latency_s=1e-6, start_s=1e-6, ramp_s=1e-6, multicast_efficiency=0.7)
    alone = group(1, cluster=h100_cluster(intra_node_link=busy, inter_node_link=busy))
    assert seconds(getattr(collectives, collective)(ONE_GB, alone)) == 0.0


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "all_to_all_s", "send_s"])
def test_more_bytes_never_take_less_time(collective: str) -> None:
    across = group_of(np.full(3, 16), np.ones(3, dtype=np.int64), h100_cluster())
    times = getattr(collectives, collective)(np.array([1e3, 1e6, 1e9]), across)
    assert times[0] < times[1] < times[2]


def test_an_empty_message_costs_the_start_and_the_steps() -> None:
    slow = h100_cluster(
        intra_node_link=link(NVLINK, latency_s=1e-6, start_s=10e-6), inter_node_link=link(PORT, latency_s=5e-6)
    )
    four_nodes = group(32, cluster=slow)
    assert seconds(collectives.all_gather_s(NOTHING, four_nodes)) == rounded((10 + 3 * 5 + 28 * 1) * 1e-6)
    # up and down: 7 ranks of a node one after the other, then 4 nodes in a tree of height 2
    assert seconds(collectives.all_reduce_s(NOTHING, four_nodes)) == rounded((10 + 2 * 7 * 1 + 2 * 2 * 5) * 1e-6)
    assert seconds(collectives.send_s(NOTHING, four_nodes)) == rounded((10 + 5) * 1e-6)


def test_the_ramp_of_a_link_costs_most_where_a_transfer_is_about_as_long() -> None:
    filling = silent(ramp_s=1e-3)
    pair = group(2, stride=8, cluster=filling)
    # 4e7 bytes are one millisecond of the port: 1 + 2 sqrt(1 * 1); a hundred times as many: 100 + 2 sqrt(1 * 100)
    assert seconds(collectives.send_s(np.array([4e7]), pair)) == rounded(3e-3)
    assert seconds(collectives.send_s(np.array([4e9]), pair)) == rounded(120e-3)


def test_switches_that_add_win_for_large_messages_of_many_ranks_only() -> None:
    sharp = silent()
    sharp = h100_cluster(intra_node_link=link(NVLINK, multicast_efficiency=0.75), inter_node_link=sharp.inter_node_link)
    multicast_s = MULTICAST_S + (1 + 1 / 8) * 1e9 / (0.75 * NVLINK)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(8, cluster=sharp))) == rounded(multicast_s)
    # two ranks: 1.5 GB at 300 GB/s are more than 1.25 GB at 400; a small message does not pay for the start
    for num_ranks, sent in ((2, ONE_GB), (8, np.array([1e6]))):
        ring_s = collectives.all_reduce_s(sent, group(num_ranks))
        assert seconds(collectives.all_reduce_s(sent, group(num_ranks, cluster=sharp))) == seconds(ring_s)


@pytest.mark.parametrize(("num_ranks", "stride", "ports"), [(16, 1, 8), (8, 4, 2), (8, 8, 1)])
def test_all_ports_of_a_node_work_for_a_ring_that_leaves_it(num_ranks: int, stride: int, ports: int) -> None:
    sent = (num_ranks - 1) / num_ranks * 1e9  # the own share is copied meanwhile
    gathered_s = collectives.all_gather_s(ONE_GB, group(num_ranks, stride))
    assert seconds(gathered_s) == rounded(sent / (ports * PORT))


def test_a_ring_is_never_faster_than_the_links_inside_its_nodes() -> None:
    fat = h100_cluster(intra_node_link=link(NVLINK), inter_node_link=link(NVLINK))
    inside_s = (16 - 1 + OWN_SHARD_COST) / 16 * 1e9 / NVLINK
    assert seconds(collectives.all_gather_s(ONE_GB, group(16, cluster=fat))) == rounded(inside_s)


@pytest.mark.parametrize(("num_nodes", "times_sent"), [(2, 1), (4, 2), (64, 2)])
def test_between_nodes_whose_switches_add_the_sum_goes_up_and_down_two_trees(num_nodes: int, times_sent: int) -> None:
    sharp = h100_cluster(
        num_nodes,
        intra_node_link=link(NVLINK, multicast_efficiency=1.0, latency_s=1e-3),  # steps that keep from using a ring
        inter_node_link=link(PORT / 4),
    )
    # each of 8 ports carries its eighth of the node's sum; two nodes just swap theirs
    sent_s = times_sent * 1e9 / 8 / (PORT / 4)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(8 * num_nodes, cluster=sharp))) == rounded(
        MULTICAST_S + sent_s
    )


@pytest.mark.parametrize("num_nodes", [2, 64])
def test_long_messages_between_nodes_take_the_ring(num_nodes: int) -> None:
    num_ranks = 8 * num_nodes
    ring_s = 2 * (num_ranks - 1) / num_ranks * 1e9 / (8 * PORT)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(num_ranks))) == rounded(ring_s)


def test_oversubscription_thins_what_leaves_a_node_only() -> None:
    for stride, factor in ((8, 4.0), (1, 1.0)):  # one rank on each node, all on one
        full_s = collectives.all_gather_s(ONE_GB, group(8, stride))
        thin_s = collectives.all_gather_s(ONE_GB, group(8, stride, silent(oversubscription=4.0)))
        assert seconds(thin_s) == rounded(factor * seconds(full_s))


def test_a_congested_network_slows_down_with_the_number_of_nodes() -> None:
    for num_nodes in (2, 8):
        free_s = collectives.send_s(ONE_GB, group(num_nodes, stride=8))
        congested_s = collectives.send_s(ONE_GB, group(num_nodes, stride=8, cluster=silent(congestion=0.5)))
        assert seconds(congested_s) == rounded(num_nodes**0.5 * seconds(free_s))


def test_an_all_to_all_across_nodes_is_limited_by_each_ranks_own_port() -> None:
    # of 16 equal shares 8 go to the other node
    assert seconds(collectives.all_to_all_s(ONE_GB, group(16))) == rounded(0.5e9 / PORT)


def test_an_all_to_all_inside_a_node_sends_every_share_once() -> None:
    shares = 8 - 1 + OWN_SHARD_COST
    assert seconds(collectives.all_to_all_s(ONE_GB, group(8))) == rounded(shares / 8 * 1e9 / NVLINK)
