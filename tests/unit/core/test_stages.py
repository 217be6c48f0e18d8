"""Stages: which layers they hold, where their ranks lie, and what they send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import combinations, pairwise, product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import GradientSync, PayloadPrecision, PipelineSchedule, RankOrder, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.dry_run import DryRun, HeldBytes, OperationCounts, RankDryRun, telling_ranks
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.link import LinkEnds, LinkHealth
from autotuner.core.placement import (
    Nodes,
    Place,
    Spread,
    cyclic_crosses,
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
from autotuner.core.stack import Stack
from autotuner.core.stages import (
    follows_signs,
    num_pieces,
    payload_bytes,
    payload_elements,
    sent_bytes,
    stage_layers,
    stages_of_rank,
)
from autotuner.core.text import field_texts
from autotuner.core.units import MIB
from tests.builders import h100_cluster, step_time


def test_a_tensor_is_cut_into_as_many_pieces_as_it_has_mebibytes_but_no_more_than_eight() -> None:
    sizes = (0, MIB, 2 * MIB - 1, 2 * MIB, 8 * MIB, 99 * MIB)
    assert [num_pieces(num_bytes) for num_bytes in sizes] == [1, 1, 1, 2, 8, 8]


def sizes(layout: Layout, num_layers: int) -> list[int]:
    stages = [stage_layers(layout, num_layers, stage) for stage in range(layout.num_stages)]
    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    return [len(stage) for stage in stages]


@given(st.integers(1, 16).flatmap(lambda stages: st.tuples(st.just(stages), st.integers(stages, 100))))
def test_stages_share_the_layers_in_order_and_the_earliest_take_the_odd_ones(shape: tuple[int, int]) -> None:
    num_stages, num_layers = shape
    found = sizes(Layout(pipeline_parallel_degree=num_stages), num_layers)
    assert all(0 <= earlier - later <= 1 for earlier, later in pairwise(found))
    assert found[0] - found[-1] <= 1


def test_the_ends_hold_fewer_layers_by_what_they_give_away() -> None:
    layout = Layout(pipeline_parallel_degree=4, first_stage_less_layers=1, last_stage_less_layers=2)
    assert sizes(layout, 13) == [3, 4, 4, 2]


def test_stages_go_round_the_ranks_or_there_and_back_in_a_v() -> None:
    rounds = Layout.parse("pp2 v3 interleaved_1f1b")
    assert [stages_of_rank(rounds, rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]
    for schedule in (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV):
        v = Layout(pipeline_parallel_degree=2, virtual_stages_per_rank=2, pipeline_schedule=schedule)
        assert [stages_of_rank(v, rank) for rank in range(2)] == [(0, 3), (1, 2)]


FULL = Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=2)
DEMO = replace(FULL, gradient_sync=GradientSync.DEMO)
RANDOM = replace(FULL, gradient_sync=GradientSync.RANDOM)
DILOCO = replace(FULL, gradient_sync=GradientSync.DILOCO)
NUM_PARAMETERS = 817_728
"""Of the decoder of the paper's small experiment; a multiple of the chunk on every shard."""

SHARD = NUM_PARAMETERS / 2


def test_demo_and_random_send_16_to_2_to_1_with_indices_of_two_bytes_in_long_chunks() -> None:
    # Rate 1/16, two replicas of two shards; ours are one byte long, so that DeMo sends 1.25 in the place of 2.
    full, random = sent_bytes(FULL, SHARD, 4.0), sent_bytes(RANDOM, SHARD, 4.0)
    demo_of_long_indices = payload_elements(DEMO, SHARD) * (4 + 4)  # one other replica: it goes to one
    assert (full, demo_of_long_indices, random) == (16 * random, 2 * random, random)
    assert full == pytest.approx(1597.2 * 1024, rel=1e-4)  # KiB per step, as stated to five digits
    assert sent_bytes(DEMO, SHARD, 4.0) == 1.25 * random
    short, long = replace(DEMO, sync_chunk=256, sync_top_k=16), replace(DEMO, sync_chunk=512, sync_top_k=32)
    assert payload_bytes(short, SHARD, 4.0) == SHARD / 16 * (4 + 1)
    assert payload_bytes(long, SHARD, 4.0) == SHARD / 16 * (4 + 2)
    assert sent_bytes(DILOCO, SHARD, 4.0) == sent_bytes(FULL, SHARD, 4.0) / 16


@pytest.mark.parametrize("one", [DEMO, RANDOM, DILOCO], ids=str)
def test_lossy_payloads_are_as_wide_as_their_own_format(one: Layout) -> None:
    narrow = replace(one, payload_precision=PayloadPrecision.BF16)
    indices = payload_elements(one, SHARD) * (one.gradient_sync == GradientSync.DEMO)
    wide_bytes, narrow_bytes = (payload_bytes(each, SHARD, 2.0) for each in (one, narrow))
    assert wide_bytes - indices == 2 * (narrow_bytes - indices)


@pytest.mark.parametrize(("chunk", "top_k"), [(64, 4), (64, 16), (128, 4), (32, 1)])
def test_demo_sends_more_than_full_from_as_many_replicas_on_as_a_chunk_has_sent_components(
    chunk: int, top_k: int
) -> None:
    """Exactly so with indices as long as values: ``(R - 1) (k / c) 8`` against ``2 (R - 1) / R 4`` bytes."""
    crossover = chunk // top_k
    for replicas in (crossover - 1, crossover, crossover + 1):
        full = replace(FULL, data_parallel_replicate_degree=replicas)
        demo = replace(full, gradient_sync=GradientSync.DEMO, sync_chunk=chunk, sync_top_k=top_k)
        long_bytes = payload_elements(demo, SHARD) * (4 + 4) * (replicas - 1)
        full_bytes = sent_bytes(full, SHARD, 4.0)
        assert (long_bytes >= full_bytes) == (replicas >= crossover)
        assert sent_bytes(demo, SHARD, 4.0) < long_bytes  # ours are shorter, which moves the crossing by 8 / 5


@pytest.mark.parametrize("replicas", [2, 3, 8, 16, 64])
def test_random_never_sends_more_than_demo_at_the_same_rate(replicas: int) -> None:
    demo, random = (
        sent_bytes(replace(one, data_parallel_replicate_degree=replicas), SHARD, 4.0) for one in (DEMO, RANDOM)
    )
    assert random < demo


def test_signs_are_followed_by_what_exchanges_a_momentum_alone() -> None:
    signed = {sync for sync in GradientSync if follows_signs(replace(FULL, gradient_sync=sync))}
    assert signed == {GradientSync.DEMO, GradientSync.RANDOM, GradientSync.STRIDING}
    assert not follows_signs(replace(DEMO, sync_sign=False))


@pytest.mark.parametrize("field", [f.name for f in fields(Stack) if f.type in ("float", "int")])
def test_no_number_of_a_stack_may_be_negative(field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        Stack(**{field: -1})  # type: ignore[arg-type]


def test_every_field_but_the_name_is_explained() -> None:
    assert {f.name for f in fields(Stack)} - field_texts(Stack).keys() <= {"name"}


def rank(number: int, activations_bytes: float) -> RankDryRun:
    held = HeldBytes(
        parameters_bytes=1.0,
        gathered_bytes=2.0,
        gradients_bytes=3.0,
        optimizer_bytes=4.0,
        activations_bytes=activations_bytes,
    )
    counts = OperationCounts(flop=1.0, moved_bytes=1.0, num_operations=1.0, collectives=())
    return RankDryRun(rank=number, held=held, counts=counts)


def test_a_step_takes_the_sum_of_its_parts_and_the_fullest_rank_has_the_highest() -> None:
    assert rank(0, 5.0).held.peak_bytes == 15.0
    assert DryRun(ranks=(rank(0, 5.0), rank(8, 7.0), rank(24, 6.0))).fullest.rank == 8
    value = step_time(matrix_s=2.0)
    # another order of the same sum may differ in the last bit
    assert value.total_s == pytest.approx(sum(getattr(value, f.name) for f in fields(value)), rel=1e-12)
    assert value.total_s == pytest.approx(2.36, rel=1e-12)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(tensor_parallel_degree=8), (0,)),
        (Layout(tensor_parallel_degree=8, pipeline_parallel_degree=4), (0, 24)),
        (Layout(pipeline_parallel_degree=4, first_stage_less_layers=1), (0, 1, 3)),
        (Layout(pipeline_parallel_degree=4, last_stage_less_layers=1), (0, 3)),
        (Layout.parse("pp4 v2 zbv lesslast1"), (0, 1, 3)),
    ],
    ids=str,
)
def test_the_reporting_ranks_are_one_of_each_pipeline_rank_that_may_be_fullest(
    layout: Layout, expected: tuple[int, ...]
) -> None:
    assert telling_ranks(layout) == expected


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
def test_cyclically_placed_ranks_reach_over_links_between_their_nodes_unless_their_stride_is_all_nodes() -> None:
    cluster = h100_cluster(num_nodes=8, accelerators_per_node=4)
    for num_ranks, stride in product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16)):
        met: set[LinkEnds] = set()
        for first in range(0, cluster.world_size, num_ranks * stride):
            for place in range(first, first + stride):
                nodes = sorted({(place + stride * i) % cluster.num_nodes for i in range(num_ranks)})
                met.update(combinations(nodes, 2))
        spread = Spread(num_ranks, stride)
        if num_ranks * stride <= cluster.world_size:
            assert {h.ends for h in links(cluster) if cyclic_crosses(spread, h, cluster)} == met, spread
            assert bool(cyclic_crosses(spread, whole_class(cluster), cluster)) == bool(met)
    cluster = h100_cluster(num_nodes=8)
    layout = Layout(pipeline_parallel_degree=8, data_parallel_shard_degree=8, rank_placement=RankPlacement.CYCLIC)
    slow = LinkHealth(ends=(0, 1), delay_s=1.0)
    assert not pipeline_crosses(layout, slow, cluster)
    assert pipeline_crosses(replace(layout, rank_placement=RankPlacement.BLOCK), slow, cluster)
