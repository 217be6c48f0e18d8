"""Tests of ``autotuner.core.placement``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any, cast

import numpy as np
import pytest

from autotuner.core.choices import PipelineSchedule, RankOrder, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.link import LinkEnds, LinkHealth
from autotuner.core.placement import (
    Nodes,
    Place,
    Spread,
    dealt_crosses,
    hop_crosses,
    pair_crosses,
    pipeline_crosses,
    place_of,
    places,
    rank_at,
    replicate_spreads,
    ring_crosses,
    shard_spread,
    stage_links,
    tensor_spread,
)
from tests.builders import h100_cluster

GRID: dict[str, Any] = {
    "pipeline_parallel_degree": 4,
    "data_parallel_replicate_degree": 2,
    "data_parallel_shard_degree": 2,
    "tensor_parallel_degree": 2,
}


def test_axes_nest_in_their_order_and_blocks_fill_a_node_where_cycles_deal_in_turn() -> None:
    place = Place(stage=1, replica=1, shard=0, tensor=1)
    assert rank_at(Layout(**GRID), place) == 1 * 8 + 1 * 4 + 1
    assert rank_at(Layout(rank_order=RankOrder.REPLICAS_OUTERMOST, **GRID), place) == 1 * 16 + 1 * 4 + 1
    block = Nodes(num_nodes=2, ranks_per_node=3)
    cyclic = Nodes(num_nodes=2, ranks_per_node=3, placement=RankPlacement.CYCLIC)
    assert [block.node_of(rank) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [cyclic.node_of(rank) for rank in range(6)] == [0, 1, 0, 1, 0, 1]


def test_stages_send_over_the_links_between_their_nodes_and_rotated_leave_out_the_one_behind_the_first() -> None:
    cluster = h100_cluster(num_nodes=4, accelerators_per_node=8)
    used = {
        rotation: set().union(
            *(stage_links(Layout(stage_rotation=rotation, **GRID), cluster, stage) for stage in range(3))
        )
        for rotation in (0, 3)
    }
    assert used == {0: {(0, 1), (1, 2), (2, 3)}, 3: {(0, 3), (0, 1), (1, 2)}}
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


@pytest.mark.parametrize("placement", RankPlacement)
def test_every_number_lies_once_on_its_node_and_the_first_stays_where_it_is(placement: RankPlacement) -> None:
    nodes = Nodes(num_nodes=3, ranks_per_node=4, placement=placement)
    numbers = {(node, local): nodes.number_of(node, local) for node in range(3) for local in range(4)}
    assert sorted(numbers.values()) == list(range(12))
    assert all(nodes.node_of(number) == node for (node, _), number in numbers.items())
    assert numbers[0, 0] == 0


def layouts() -> Iterator[Layout]:
    """Grids of up to 12 ranks, also of three, in every order and rotation."""
    for tensor, shard, replicate, stages in product((1, 2), (1, 2, 3), (1, 2), (1, 2, 3, 4)):
        if tensor * shard * replicate * stages > 12:
            continue
        orders = RankOrder if replicate > 1 and stages > 1 else (RankOrder.STAGES_OUTERMOST,)
        for order, rotation in product(orders, {0, stages // 2, stages - 1}):
            yield Layout(
                tensor_parallel_degree=tensor,
                data_parallel_shard_degree=shard,
                data_parallel_replicate_degree=replicate,
                pipeline_parallel_degree=stages,
                rank_order=order,
                stage_rotation=rotation,
            )


def clusters(num_ranks: int) -> Iterator[Cluster]:
    """One node of so many, and every way to deal them to nodes."""
    for per_node in range(1, num_ranks + 1):
        if num_ranks % per_node == 0:
            yield h100_cluster(num_nodes=num_ranks // per_node, accelerators_per_node=per_node)


CASES = [(layout, cluster) for layout in layouts() for cluster in clusters(layout.world_size)]


def link_of(cluster: Cluster, one: int, other: int) -> set[LinkEnds]:
    low, high = sorted((cluster.link_end(one), cluster.link_end(other)))
    return {(low, high)} if low < high else set()


def groups(layout: Layout, axis: str) -> Iterable[list[int]]:
    """Ranks that differ in one coordinate alone, in order."""
    found: dict[Place, list[int]] = defaultdict(list)
    for place in places(layout):
        found[place._replace(**{axis: 0})].append(rank_at(layout, place))
    return [sorted(ranks) for ranks in found.values()]


def links(cluster: Cluster) -> list[LinkHealth]:
    return [LinkHealth(ends=ends, delay_s=1.0) for ends in combinations(range(cluster.num_link_ends), 2)]


def whole_class(cluster: Cluster) -> LinkHealth:
    return LinkHealth(link_class="inter_node" if cluster.num_nodes > 1 else "intra_node", delay_s=1.0)


def spread_of(layout: Layout, axis: str) -> Spread:
    known = {"tensor": tensor_spread(layout), "shard": shard_spread(layout), "replica": replicate_spreads(layout)[0]}
    return known[axis]


@pytest.mark.parametrize("axis", ["tensor", "shard", "replica"])
def test_rings_and_pairs_of_every_axis_reach_over_the_links_that_their_ranks_lie_at(axis: str) -> None:
    for layout, cluster in CASES:
        rings: set[LinkEnds] = set()
        pairs: set[LinkEnds] = set()
        for ranks in groups(layout, axis):
            rings.update(
                *(link_of(cluster, one, other) for one, other in zip(ranks, ranks[1:] + ranks[:1], strict=True))
            )
            pairs.update(*(link_of(cluster, one, other) for one, other in combinations(ranks, 2)))
        spread = spread_of(layout, axis)
        assert {h.ends for h in links(cluster) if ring_crosses(spread, h, cluster)} == rings, (layout, cluster)
        assert {h.ends for h in links(cluster) if pair_crosses(spread, h, cluster)} == pairs, (layout, cluster)
        assert bool(ring_crosses(spread, whole_class(cluster), cluster)) == bool(rings)


def over_hop(layout: Layout, cluster: Cluster, hop: int) -> set[LinkEnds]:
    there = (hop + 1) % layout.pipeline_parallel_degree
    found: set[LinkEnds] = set()
    for place in places(layout):
        if place.stage == hop:
            found |= link_of(cluster, rank_at(layout, place), rank_at(layout, place._replace(stage=there)))
    return found


def test_each_hop_of_a_pipeline_reaches_over_the_links_between_its_two_stages() -> None:
    for layout, cluster in CASES:
        every: set[LinkEnds] = set()
        for hop in range(layout.pipeline_parallel_degree):
            expected = over_hop(layout, cluster, hop)
            assert {h.ends for h in links(cluster) if hop_crosses(layout, hop, h, cluster)} == expected
            assert bool(hop_crosses(layout, hop, whole_class(cluster), cluster)) == bool(expected)
            every |= expected if hop < layout.pipeline_parallel_degree - 1 else set()
        assert {h.ends for h in links(cluster) if pipeline_crosses(layout, h, cluster)} == every, (layout, cluster)


@pytest.mark.parametrize(
    ("schedule", "uses_it"), [(PipelineSchedule.INTERLEAVED_1F1B, True), (PipelineSchedule.ZBV, False)]
)
def test_rounds_of_stages_use_the_link_from_the_last_rank_to_the_first_unless_they_fold(
    schedule: PipelineSchedule, uses_it: bool
) -> None:
    cluster = h100_cluster(num_nodes=4, accelerators_per_node=1)
    layout = Layout(pipeline_parallel_degree=4, virtual_stages_per_rank=2, pipeline_schedule=schedule)
    assert pipeline_crosses(layout, LinkHealth(ends=(0, 3), is_dead=True), cluster) == uses_it


def test_columns_are_judged_as_layouts_are_and_links_that_a_cluster_lacks_say_nothing() -> None:
    cluster = h100_cluster(num_nodes=3, accelerators_per_node=4)
    fitting = [layout for layout in layouts() if layout.world_size == cluster.world_size]
    x: Any = cast("Layout", LayoutColumns.from_layouts(fitting))
    for health in (*links(cluster), whole_class(cluster)):
        columns = np.broadcast_to(pipeline_crosses(x, health, cluster), len(fitting))
        assert list(columns) == [bool(pipeline_crosses(layout, health, cluster)) for layout in fitting]
    cluster = replace(h100_cluster(num_nodes=2), accelerators_per_node=4)
    inside = LinkHealth(link_class="intra_node", delay_s=1.0)
    assert not ring_crosses(Spread(8, 1), inside, cluster)


# ---------------------------------------------------------------------- ranks that are dealt to nodes in turn
def test_ranks_that_are_dealt_reach_over_links_between_their_nodes_unless_their_stride_is_all_nodes() -> None:
    cluster = h100_cluster(num_nodes=8, accelerators_per_node=4)
    for num_ranks, stride in product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16)):
        met: set[LinkEnds] = set()
        for first in range(0, cluster.world_size, num_ranks * stride):
            for place in range(first, first + stride):
                nodes = sorted({(place + stride * i) % cluster.num_nodes for i in range(num_ranks)})
                met.update(combinations(nodes, 2))
        spread = Spread(num_ranks, stride)
        if num_ranks * stride <= cluster.world_size:
            assert {h.ends for h in links(cluster) if dealt_crosses(spread, h, cluster)} == met, spread
            assert bool(dealt_crosses(spread, whole_class(cluster), cluster)) == bool(met)
    cluster = h100_cluster(num_nodes=8)
    layout = Layout(pipeline_parallel_degree=8, data_parallel_shard_degree=8, rank_placement=RankPlacement.CYCLIC)
    slow = LinkHealth(ends=(0, 1), delay_s=1.0)
    assert not pipeline_crosses(layout, slow, cluster)
    assert pipeline_crosses(replace(layout, rank_placement=RankPlacement.BLOCK), slow, cluster)
