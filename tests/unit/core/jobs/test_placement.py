"""Which rank holds which place of a layout's grid."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.jobs.placement import Place, place_of, places, rank_at, stage_links
from autotuner.core.layouts.choice import RankOrder
from autotuner.core.layouts.layout import Layout
from tests.builders import h100_cluster

GRID: dict[str, Any] = {
    "pipeline_parallel_degree": 4,
    "data_parallel_replicate_degree": 2,
    "data_parallel_shard_degree": 2,
    "tensor_parallel_degree": 2,
}


@pytest.mark.parametrize("order", RankOrder)
@pytest.mark.parametrize("rotation", [0, 3])
def test_every_rank_holds_one_place(order: RankOrder, rotation: int) -> None:
    layout = Layout(rank_order=order, stage_rotation=rotation, **GRID)
    assert sorted(rank_at(layout, place) for place in places(layout)) == list(range(32))


def test_the_tensor_axis_is_innermost_and_stages_or_replicas_outermost() -> None:
    place = Place(stage=1, replica=1, shard=0, tensor=1)
    assert rank_at(Layout(**GRID), place) == 1 * 8 + 1 * 4 + 1
    assert rank_at(Layout(rank_order=RankOrder.REPLICAS_OUTERMOST, **GRID), place) == 1 * 16 + 1 * 4 + 1


def test_rotated_stages_leave_out_the_link_behind_the_first_node_that_they_use() -> None:
    cluster = h100_cluster(num_nodes=4, accelerators_per_node=8)
    used = {
        rotation: set().union(
            *(stage_links(Layout(stage_rotation=rotation, **GRID), cluster, stage) for stage in range(3))
        )
        for rotation in (0, 3)
    }
    assert used == {0: {(0, 1), (1, 2), (2, 3)}, 3: {(0, 3), (0, 1), (1, 2)}}


def test_stages_that_share_a_node_send_over_no_link() -> None:
    cluster = h100_cluster(num_nodes=2, accelerators_per_node=16)
    layout = Layout(rank_order=RankOrder.REPLICAS_OUTERMOST, **GRID)
    assert [stage_links(layout, cluster, stage) for stage in range(3)] == [frozenset()] * 3


@pytest.mark.parametrize("order", list(RankOrder))
@pytest.mark.parametrize("rotation", [0, 1, 3])
def test_the_place_of_a_rank_is_the_one_that_it_holds(order: RankOrder, rotation: int) -> None:
    layout = Layout(
        pipeline_parallel_degree=4,
        data_parallel_replicate_degree=2,
        data_parallel_shard_degree=3,
        tensor_parallel_degree=2,
        rank_order=order,
        stage_rotation=rotation,
    )
    for place in places(layout):
        assert place_of(layout, rank_at(layout, place)) == place
