from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import RankOrder, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.search.explain.rank_groups import rank_groups
from tests.builders import big_job

LAYOUT = Layout(
    tensor_parallel_degree=4,
    pipeline_parallel_degree=4,
    context_parallel_degree=2,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.OPTIMIZER,
    sequence_parallel=True,
)


def test_a_rank_has_a_group_along_every_axis_and_each_crosses_the_slowest_link_between_its_ranks() -> None:
    found = rank_groups(LAYOUT, big_job(), 21)
    assert (found.node, found.pipeline_rank, found.ranks_per_stage) == (2, 1, 16)
    assert {group.axis: group.ranks for group in found.groups} == {
        "tensor": (20, 21, 22, 23),
        "context": (17, 21),
        "pipeline": (5, 21, 37, 53),
        "data": (17, 21, 25, 29),
    }
    cluster = big_job().cluster
    inside, across = cluster.intra_node_link.name, cluster.inter_node_link.name
    assert [(group.link, group.num_nodes) for group in found.groups] == [
        (inside, 1),
        (inside, 1),
        (across, 4),
        (across, 2),
    ]


def test_every_rank_is_a_member_of_its_own_groups_as_its_peers_see_them() -> None:
    for rank in (0, 21, 63):
        for group in rank_groups(LAYOUT, big_job(), rank).groups:
            assert rank in group.ranks
            peers = {one.axis: one.ranks for one in rank_groups(LAYOUT, big_job(), group.ranks[-1]).groups}
            assert peers[group.axis] == group.ranks


def test_groups_of_one_are_left_out() -> None:
    alone = replace(LAYOUT, tensor_parallel_degree=1, context_parallel_degree=1, data_parallel_shard_degree=16)
    assert [group.axis for group in rank_groups(alone, big_job(), 0).groups] == ["pipeline", "data"]


@pytest.mark.parametrize("rank", [-1, 64])
def test_a_rank_that_the_layout_lacks_is_refused_with_the_nearest_that_it_has(rank: int) -> None:
    with pytest.raises(InvalidInput, match="0 to 63"):
        rank_groups(LAYOUT, big_job(), rank)


# ---------------------------------------------------------------------- places, and links that are not healthy
TURNED = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=4,
    data_parallel_replicate_degree=2,
    rank_order=RankOrder.REPLICAS_OUTERMOST,
    stage_rotation=1,
)


def slow_job() -> Job:
    late = LinkHealth(ends=(1, 2), delay_s=0.03)
    return replace(big_job(), cluster=replace(big_job().cluster, link_health=(late,)))


def test_stages_that_are_turned_and_replicas_outermost_lie_where_their_ranks_do() -> None:
    found = rank_groups(TURNED, slow_job(), 8)
    assert (found.pipeline_rank, found.stages_in_order) == (0, False)
    assert {group.axis: group.ranks for group in found.groups if group.axis != "tensor"} == {
        "pipeline": (8, 16, 24, 0),
        "data": (8, 40),
    }


def test_a_group_says_which_slow_links_lie_between_its_ranks() -> None:
    found = {group.axis: group.slow_links for group in rank_groups(TURNED, slow_job(), 8).groups}
    assert [health.ends for health in found["pipeline"]] == [(1, 2)]
    assert found["tensor"] == found["data"] == ()
    other = {group.axis: group.slow_links for group in rank_groups(TURNED, slow_job(), 40).groups}
    assert other["pipeline"] == ()


def test_stages_that_do_not_follow_one_another_talk_over_no_link() -> None:
    apart = replace(TURNED, stage_rotation=2)  # node 1 holds the last stage, node 2 the first
    found = {group.axis: group.slow_links for group in rank_groups(apart, slow_job(), 16).groups}
    assert found["pipeline"] == ()
