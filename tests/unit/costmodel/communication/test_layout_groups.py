"""Where the groups of a layout lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autotuner.core.choices import ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_group,
    group_of,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)
from tests.builders import big_job, h100_cluster


def ranks_per_node(num_ranks: int, stride: int, cluster: Cluster) -> int:
    return int(group_of(np.array([num_ranks]), np.array([stride]), cluster).ranks_per_node[0])


def test_in_an_nvlink_domain_of_several_nodes_a_group_has_the_ports_of_all_its_ranks_there() -> None:
    racks = h100_cluster(num_nodes=32, accelerators_per_node=4, nvlink_domain=72)
    assert [ranks_per_node(*group, racks) for group in ((8, 1), (64, 1), (128, 1), (16, 8))] == [8, 64, 64, 8]


def test_a_group_that_straddles_two_nodes_has_few_ranks_on_one_side_of_the_border() -> None:
    assert [ranks_per_node(n, 1, h100_cluster(num_nodes=3)) for n in (3, 4, 6)] == [1, 4, 2]


@pytest.mark.parametrize(("group_size", "stride"), list(product([1, 2, 3, 4, 8, 16], [1, 2, 3, 4, 8, 16])))
def test_a_group_crosses_nodes_exactly_where_the_cluster_says_so(group_size: int, stride: int) -> None:
    cluster = h100_cluster()
    crosses = cluster.link_for(group_size, stride) == cluster.inter_node_link
    assert bool(group_of(np.array([group_size]), np.array([stride]), cluster).crosses_nodes[0]) == crosses


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
    cluster = h100_cluster()
    sizes_and_ports = {
        name: (int(g.num_ranks[0]), int(g.ranks_per_node[0]), bool(g.crosses_nodes[0]))
        for name, g in {
            "tensor": tensor_group(x, cluster),
            "context": context_group(x, cluster),
            "shard": shard_group(x, cluster),
            "replicate": replicate_group(x, cluster),
            "expert": expert_group(x, replace(big_job(), cluster=cluster)),
            "pipeline": pipeline_group(x, cluster),
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
    assert replicate_group(x, h100_cluster()).num_ranks.tolist() == [8]
