"""What a late or narrow link does to collectives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import RankOrder, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth, MeasuredCollective
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s, all_to_all_s
from autotuner.costmodel.communication.layout_groups import replicate_group, shard_group, tensor_group
from tests.builders import h100_cluster

FOUR = h100_cluster(num_nodes=4, accelerators_per_node=1)
SHARDED = LayoutColumns.from_layouts([Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS)])
BYTES = np.array([1e6])


def with_link(cluster: Cluster, **changes: object) -> Cluster:
    return replace(cluster, link_health=(LinkHealth(**{"ends": (1, 2), **changes}),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("collective", "num_steps"),
    [(all_gather_s, 3), (all_to_all_s, 3), (all_reduce_s, 4)],  # a tree of four: two steps up, two down
    ids=["all_gather", "all_to_all", "all_reduce"],
)
def test_a_late_link_is_late_in_every_step_of_a_collective(collective: object, num_steps: int) -> None:
    assert callable(collective)
    healthy, late = (shard_group(SHARDED, cluster) for cluster in (FOUR, with_link(FOUR, delay_s=0.01)))
    added_s = collective(BYTES, late) - collective(BYTES, healthy)
    assert float(added_s[0]) == pytest.approx(num_steps * 0.01, rel=0.02)  # the faster algorithm may be another


def test_groups_that_do_not_reach_over_it_are_as_fast_as_ever() -> None:
    two_nodes = h100_cluster(num_nodes=2)
    late = replace(two_nodes, link_health=(LinkHealth(ends=(0, 1), delay_s=1.0),))
    x = LayoutColumns.from_layouts([Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=2)])
    assert all_reduce_s(BYTES, tensor_group(x, late)) == all_reduce_s(BYTES, tensor_group(x, two_nodes))
    assert all_reduce_s(BYTES, replicate_group(x, late)) > 1.0


def test_a_ring_is_as_fast_as_its_narrowest_link() -> None:
    narrow = with_link(FOUR, bandwidth_bytes_per_s=FOUR.inter_node_link.bandwidth_bytes_per_s / 10)
    large = np.array([1e12])
    ratio = all_gather_s(large, shard_group(SHARDED, narrow)) / all_gather_s(large, shard_group(SHARDED, FOUR))
    assert float(ratio[0]) == pytest.approx(10, rel=0.01)  # latencies are nothing beside so many bytes


def test_collectives_that_were_timed_on_good_links_are_late_and_narrow_too() -> None:
    timed = MeasuredCollective(kind="all_gather", num_ranks=4, start_s=1e-3, s_per_byte=1e-9)
    link = replace(FOUR.intra_node_link, measured=(timed,))
    node = h100_cluster(num_nodes=1, accelerators_per_node=4, intra_node_link=link, inter_node_link=link)
    slow = with_link(node, delay_s=0.01, bandwidth_bytes_per_s=1e6)
    seconds = [float(all_gather_s(BYTES, shard_group(SHARDED, cluster))[0]) for cluster in (node, slow)]
    assert seconds == pytest.approx([2e-3, 0.75 + 0.03])


def test_what_is_said_of_one_link_goes_before_what_is_said_of_its_class() -> None:
    both = LinkHealth(link_class="inter_node", delay_s=0.01), LinkHealth(ends=(1, 2), delay_s=0.03)
    for order in (both, both[::-1]):
        group = shard_group(SHARDED, replace(FOUR, link_health=order))
        assert group.slow is not None
        assert group.slow.delay_s == 0.03


def test_replicas_outermost_lie_as_far_apart_as_all_ranks_of_one() -> None:
    layout = Layout(data_parallel_replicate_degree=2, pipeline_parallel_degree=8, context_parallel_degree=2)
    x = LayoutColumns.from_layouts([layout, replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)])
    group = replicate_group(x, h100_cluster(num_nodes=4))
    assert group.num_ranks.tolist() == [4, 4]
    assert group.crosses_nodes.tolist() == [False, True]
    assert group.ranks_per_node.tolist() == [4, 2]
