"""Stages, what lossy exchanges send, and what a stack or dry run says of them."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import GradientSync, PayloadPrecision, PipelineSchedule
from autotuner.core.dry_run import DryRun, HeldBytes, OperationCounts, RankDryRun, telling_ranks
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
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
from autotuner.core.units import MIB
from tests.builders import step_time


def test_a_tensor_is_cut_into_as_many_pieces_as_it_has_mebibytes_but_no_more_than_eight() -> None:
    assert [num_pieces(num_bytes) for num_bytes in (0, MIB, 2 * MIB - 1, 2 * MIB, 8 * MIB, 99 * MIB)] == [
        1,
        1,
        1,
        2,
        8,
        8,
    ]


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
    words = inspect.getdoc(Stack) or ""
    assert all(f"{f.name}: " in words for f in fields(Stack) if f.name != "name")


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
def test_the_telling_ranks_are_one_of_each_pipeline_rank_that_may_be_fullest(
    layout: Layout, expected: tuple[int, ...]
) -> None:
    assert telling_ranks(layout) == expected
