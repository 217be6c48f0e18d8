"""Wire times against the ring formulas, and groups against the cluster's own answer."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autotuner.costmodel import collectives
from autotuner.costmodel.collectives import LINK_EFFICIENCY, Group, group_of
from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.choice import ShardLevel
from autotuner.domain.cluster import Cluster, Link
from autotuner.domain.layout import Layout
from tests.builders import h100_cluster

NVLINK = 450e9 * LINK_EFFICIENCY
PORT = 50e9 * LINK_EFFICIENCY


def silent(num_nodes: int = 8) -> Cluster:
    """A cluster whose links have no latency, so that bytes over bandwidth is all."""
    return h100_cluster(
        num_nodes,
        intra_node_link=Link(name="nvlink4", bandwidth_bytes_per_s=450e9, latency_s=0.0),
        inter_node_link=Link(name="ndr400", bandwidth_bytes_per_s=50e9, latency_s=0.0),
    )


def group(num_ranks: int, stride: int = 1, cluster: Cluster | None = None) -> Group:
    return group_of(np.array([num_ranks]), np.array([stride]), cluster or silent())


def seconds(values: Floats) -> float:
    return float(values[0])


ONE_GB = np.array([1e9])


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_ring_all_reduce_moves_two_n_minus_one_nths_of_the_bytes(num_ranks: int) -> None:
    expected = 2 * (num_ranks - 1) / num_ranks * 1e9 / NVLINK
    # the same products in another order: equal but for rounding
    assert seconds(collectives.all_reduce_s(ONE_GB, group(num_ranks))) == pytest.approx(expected, rel=1e-12)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    eight = group(8)
    both = collectives.reduce_scatter_s(ONE_GB, eight) + collectives.all_gather_s(ONE_GB, eight)
    assert seconds(collectives.all_reduce_s(ONE_GB, eight)) == seconds(both)


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_s"])
def test_one_rank_alone_costs_nothing(collective: str) -> None:
    alone = group(1, cluster=h100_cluster())
    assert seconds(getattr(collectives, collective)(ONE_GB, alone)) == 0.0


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "all_to_all_s", "send_s"])
def test_more_bytes_never_take_less_time(collective: str) -> None:
    across = group_of(np.full(3, 16), np.ones(3, dtype=np.int64), h100_cluster())
    times = getattr(collectives, collective)(np.array([1e3, 1e6, 1e9]), across)
    assert times[0] < times[1] < times[2]


def test_all_ports_of_a_node_work_for_a_ring_that_leaves_it() -> None:
    assert seconds(group(16).ring_bandwidth_bytes_per_s) == pytest.approx(8 * PORT, rel=1e-12)  # rounding only
    assert seconds(group(8, stride=8).ring_bandwidth_bytes_per_s) == pytest.approx(PORT, rel=1e-12)
    assert seconds(group(8, stride=4).ring_bandwidth_bytes_per_s) == pytest.approx(2 * PORT, rel=1e-12)


def test_a_ring_is_never_faster_than_the_links_inside_its_nodes() -> None:
    fat = h100_cluster(inter_node_link=Link(name="fat", bandwidth_bytes_per_s=400e9, latency_s=0.0))
    assert seconds(group(16, cluster=fat).ring_bandwidth_bytes_per_s) == NVLINK


def test_oversubscription_thins_what_leaves_a_node_only() -> None:
    thin = h100_cluster(oversubscription=4.0)
    assert seconds(group(8, 8, thin).ring_bandwidth_bytes_per_s) == pytest.approx(PORT / 4, rel=1e-12)  # rounding
    assert seconds(group(8, 1, thin).ring_bandwidth_bytes_per_s) == NVLINK


def test_a_ring_pays_one_network_latency_per_other_node() -> None:
    across = group(32, cluster=h100_cluster())
    assert seconds(across.round_latency_s) == pytest.approx(3 * 5e-6 + 28 * 2e-6, rel=1e-12)  # rounding only


@pytest.mark.parametrize(("group_size", "stride"), list(product([1, 2, 3, 4, 8, 16], [1, 2, 3, 4, 8, 16])))
def test_a_group_crosses_nodes_exactly_where_the_cluster_says_so(group_size: int, stride: int) -> None:
    cluster = h100_cluster()
    crosses = cluster.link_for(group_size, stride) == cluster.inter_node_link
    assert bool(group(group_size, stride, cluster).crosses_nodes[0]) == crosses


def test_an_all_to_all_across_nodes_is_limited_by_each_ranks_own_port() -> None:
    # of 16 equal shares 8 go to the other node
    assert seconds(collectives.all_to_all_s(ONE_GB, group(16))) == pytest.approx(0.5e9 / PORT, rel=1e-12)


def test_groups_follow_the_rank_order_of_a_layout() -> None:
    x = LayoutColumns.from_layouts(
        [
            Layout(
                tensor_parallel_degree=4,
                context_parallel_degree=2,
                data_parallel_shard_degree=2,
                data_parallel_replicate_degree=2,
                pipeline_parallel_degree=2,
                expert_parallel_degree=8,
                shard_level=ShardLevel.PARAMETERS,
            )
        ]
    )
    cluster = silent()
    sizes_and_ports = {
        name: (int(g.num_ranks[0]), int(g.ranks_per_node[0]), bool(g.crosses_nodes[0]))
        for name, g in {
            "tensor": collectives.tensor_group(x, cluster),
            "context": collectives.context_group(x, cluster),
            "shard": collectives.shard_group(x, cluster),
            "replicate": collectives.replicate_group(x, cluster),
            "expert": collectives.expert_group(x, cluster),
            "pipeline": collectives.pipeline_group(x, cluster),
        }.items()
    }
    assert sizes_and_ports == {
        "tensor": (4, 4, False),
        "context": (2, 2, False),
        "shard": (4, 2, True),  # shard and context ranks, 4 apart
        "replicate": (2, 1, True),
        "expert": (8, 8, False),
        "pipeline": (2, 1, True),
    }


def test_context_ranks_are_replicas_where_nothing_is_sharded() -> None:
    x = LayoutColumns.from_layouts([Layout(context_parallel_degree=4, data_parallel_replicate_degree=2)])
    assert collectives.replicate_group(x, silent()).num_ranks.tolist() == [8]
