"""Stages, their layers and experts, and micro-batches in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.models import load_model
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stack import Stack
from autotuner.core.stages import stage_layers, stages_of_rank
from autotuner.core.workload import Workload
from autotuner.costmodel.shared.micro_batch import load_factor, own_copies, own_tokens, rows_per_expert, width_split
from autotuner.costmodel.shared.stages import (
    LAYERS,
    fullest_candidates,
    held_layers,
    layers_not_recomputed,
    model_layers_not_recomputed,
    num_micro_batches,
    slowest_candidates,
)
from tests.builders import big_job, h100_cluster, llama_70b, tiny_job, tiny_model
from tests.unit.costmodel.works import columns, first, with_stack

# ---------------------------------------------------------------- Tests of `autotuner.costmodel.shared.stages`
INTERLEAVED, ZBV, DUALPIPEV = PipelineSchedule.INTERLEAVED_1F1B, PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV


@st.composite
def piped(draw: st.DrawFn) -> tuple[Layout, Job]:
    """A pipeline whose stages all hold layers, of a model some of whose leading layers may be dense."""
    schedule, stages = draw(
        st.sampled_from(
            [(PipelineSchedule.ONE_F_ONE_B, 1), (INTERLEAVED, 2), (INTERLEAVED, 3), (ZBV, 2), (DUALPIPEV, 2)]
        )
    )
    ranks, per_stage = draw(st.integers(2, 5)), draw(st.integers(3, 6))
    first, last = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    odd = draw(st.integers(0, ranks - 1)) if stages == 1 else 0  # several stages per rank are equal
    layout = Layout(
        pipeline_parallel_degree=ranks,
        virtual_stages_per_rank=stages,
        pipeline_schedule=schedule,
        first_stage_less_layers=first,
        last_stage_less_layers=last,
        recompute_every=draw(st.integers(1, 4)),
    )
    num_layers = ranks * stages * per_stage + odd - first - last
    num_dense, interval = draw(st.none() | st.integers(0, num_layers)), draw(st.integers(1, 3))
    experts = MixtureOfExperts(
        num_experts=4,
        experts_per_token=2,
        expert_ffn_size=64,
        num_dense_layers=num_dense or 0,
        sparse_layer_interval=interval,
    )
    model = tiny_model(num_layers=num_layers, experts=None if num_dense is None else experts)
    return layout, tiny_job(1, model=model)


def layers_of(layout: Layout, job: Job, rank: int) -> list[range]:
    return [stage_layers(layout, job.model.num_layers, stage) for stage in stages_of_rank(layout, rank)]


def kinds(job: Job, layers: list[int]) -> list[int]:
    """How many of the layers are dense, and sparse."""
    sparse = sum(job.model.experts is not None and job.model.experts.is_sparse(layer) for layer in layers)
    return [len(layers) - sparse, sparse]


@given(piped())
def test_columns_hold_the_layers_that_stages_deal(drawn: tuple[Layout, Job]) -> None:
    layout, job = drawn
    x = LayoutColumns.from_layouts([layout])
    for rank in range(layout.pipeline_parallel_degree):
        layers = [layer for stage in layers_of(layout, job, rank) for layer in stage]
        dense, sparse = held_layers(x, job, np.array([rank])).values()
        assert [int(dense[0]), int(sparse[0])] == kinds(job, layers)


@given(piped())
def test_every_nth_layer_of_a_stage_recomputes_from_the_first_on(drawn: tuple[Layout, Job]) -> None:
    layout, job = drawn
    x, total = LayoutColumns.from_layouts([layout]), np.zeros(2, dtype=np.int64)
    for rank in range(layout.pipeline_parallel_degree):
        not_recomputed = [
            layer
            for stage in layers_of(layout, job, rank)
            for place, layer in enumerate(stage)
            if place % layout.recompute_every
        ]
        found = [int(count[0]) for count in layers_not_recomputed(x, job, np.array([rank])).values()]
        assert found == kinds(job, not_recomputed)
        total += found
    assert [int(count[0]) for count in model_layers_not_recomputed(x, job).values()] == total.tolist()


# ---------------------------------------------------------------- Which tokens the experts of a rank see
EXPERTS = MixtureOfExperts(num_experts=16, experts_per_token=2, expert_ffn_size=1024)


def job(experts: MixtureOfExperts = EXPERTS, **stack: Any) -> Job:
    return with_stack(replace(big_job(), model=llama_70b(experts=experts)), **{"expert_imbalance": 1.0, **stack})


def apart(num_ranks: int, **changes: Any) -> Layout:
    return Layout(
        **{
            "data_parallel_shard_degree": num_ranks,
            "expert_parallel_degree": num_ranks,
            "shard_level": ShardLevel.OPTIMIZER,
            **changes,
        }
    )


@pytest.mark.parametrize("layout", [Layout(), apart(4), apart(2, tensor_parallel_degree=2, sequence_parallel=True)])
@pytest.mark.parametrize("splits", [False, True])
def test_experts_multiply_as_many_rows_as_tokens_choose_them(layout: Layout, splits: bool) -> None:
    x, one = columns(layout), job(splits_experts=splits)
    ranks = layout.data_parallel_shard_degree * layout.tensor_parallel_degree
    held = 16 / layout.expert_parallel_degree / int(width_split(x, one)[0])
    # every token of every rank's sequence is seen by two experts; the tensor ranks share a sequence
    seen = 2 * layout.data_parallel_shard_degree * one.workload.seq_len
    assert ranks * held * first(rows_per_expert(x, one, EXPERTS)) == seen


def test_loads_of_experts_even_out_over_several_and_are_bounded_by_a_capacity() -> None:
    x = columns(apart(2, tensor_parallel_degree=4))
    whole, split = (first(own_tokens(x, job(splits_experts=flag))) for flag in (False, True))
    assert split == 4 * whole
    assert first(own_copies(columns(apart(4)), job(), EXPERTS)) == 2 * job().workload.seq_len
    uneven = job(expert_imbalance=1.4)
    alone, several, all_of_them = (first(load_factor(columns(apart(ranks)), uneven, EXPERTS)) for ranks in (16, 4, 1))
    assert alone == pytest.approx(1.4)
    assert several == pytest.approx(1.2)  # of four experts: half the excess
    assert all_of_them == 1.0
    bounded = replace(EXPERTS, capacity_factor=1.1)
    filled = replace(EXPERTS, capacity_factor=1.5, pads_to_capacity=True)
    loads = [first(load_factor(columns(apart(16)), job(e, expert_imbalance=1.4), e)) for e in (bounded, filled)]
    assert loads == [1.1, 1.5]


GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule


def of_layers(num_micro_batches: int, *, num_layers: int = 16) -> Job:
    workload = Workload(seq_len=64, global_batch_size=num_micro_batches)
    return Job(model=tiny_model(num_layers=num_layers), cluster=h100_cluster(), workload=workload)


def pipeline(ranks: int, schedule: PipelineSchedule = ONE_F_ONE_B, stages_per_rank: int = 1) -> LayoutColumns:
    layout = Layout(pipeline_parallel_degree=ranks, pipeline_schedule=schedule, virtual_stages_per_rank=stages_per_rank)
    return LayoutColumns.from_layouts([layout])


@pytest.mark.parametrize(
    ("schedule", "stages_per_rank", "first", "last"),
    [
        (GPIPE, 1, 12, 12),
        (ONE_F_ONE_B, 1, 4, 1),
        (ZERO_BUBBLE, 1, 4, 4),  # p, arXiv 2401.10241, table 1
        (INTERLEAVED, 2, (4 * 2 + 3) / 2, (4 + 1) / 2),  # (p v + p - 1) / v, and (v - 1) p + 1 of them
        (ZBV, 2, 4, 4),
        (ADAPTIVE, 1, 7, 7),  # 2 p - 1, the warm-up of ZB-H2 in arXiv 2401.10241
    ],
)
def test_micro_batches_in_flight_follow_the_schedule(
    schedule: PipelineSchedule, stages_per_rank: int, first: float, last: float
) -> None:
    ranks = slowest_candidates(pipeline(4, schedule, stages_per_rank), of_layers(12))
    assert [float(load.micro_batches_in_flight[0]) for load in ranks] == [first, last]


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B, ZERO_BUBBLE])
def test_no_more_is_in_flight_than_there_is(schedule: PipelineSchedule) -> None:
    first, _ = slowest_candidates(pipeline(8, schedule), of_layers(2))
    assert float(first.micro_batches_in_flight[0]) == 2


def test_columns_count_micro_batches_and_interleaved_ranks_keep_the_published_factor() -> None:
    # arXiv 2205.05198, section 4.2.3: L (1 + (p - 1) / (p v)) layers instead of L
    first, _ = slowest_candidates(pipeline(4, INTERLEAVED, 2), of_layers(64))
    assert float((first.num_layers * first.micro_batches_in_flight)[0]) == 16 * (1 + 3 / 8)
    layouts = [Layout(data_parallel_replicate_degree=2, micro_batch_size=3), Layout(micro_batch_size=4)]
    whole = of_layers(24)
    columns = num_micro_batches(LayoutColumns.from_layouts(layouts), whole)
    assert columns.tolist() == [whole.workload.num_micro_batches(layout) for layout in layouts]


def test_layers_go_to_the_first_stages_and_lookups_and_losses_to_the_ends() -> None:
    first, last = slowest_candidates(pipeline(4), of_layers(8, num_layers=18))
    assert (int(first.num_layers[0]), int(last.num_layers[0])) == (5, 4)
    deepseek = load_model("deepseek-v3")  # 61 layers, of which the first 3 are dense
    whole = Job(model=deepseek, cluster=h100_cluster(), workload=Workload(seq_len=4096, global_batch_size=64))
    first, last, behind = slowest_candidates(pipeline(16), whole)
    layers = [[int(r.counts[kind][0]) for kind in LAYERS] for r in (first, behind, last)]
    assert [int(r.rank[0]) for r in (first, behind, last)] == [0, 1, 15]
    assert layers == [[3, 1], [0, 4], [0, 3]]
    first, last = slowest_candidates(pipeline(4), of_layers(8))
    assert (bool(first.has_input[0]), bool(first.has_output[0])) == (True, False)
    assert (bool(last.has_input[0]), bool(last.has_output[0])) == (False, True)
    for load in slowest_candidates(pipeline(1), of_layers(8)):
        assert (bool(load.has_input[0]), bool(load.has_output[0])) == (True, True)
    first, last = slowest_candidates(pipeline(4, ZBV, 2), of_layers(8))
    assert (bool(first.has_output[0]), bool(last.has_output[0])) == (True, False)


@pytest.mark.parametrize(("schedule", "stages_per_rank"), [(INTERLEAVED, 2), (INTERLEAVED, 4), (ZBV, 2)])
def test_a_rank_of_several_stages_holds_its_share_of_layers(schedule: PipelineSchedule, stages_per_rank: int) -> None:
    for load in slowest_candidates(pipeline(4, schedule, stages_per_rank), of_layers(8)):
        assert int(load.num_layers[0]) == 4


def layers_of_ranks(x: LayoutColumns, whole: Job) -> list[int]:
    """Layers of each pipeline rank that can be slowest or fullest."""
    return [int(load.num_layers[0]) for load in slowest_candidates(x, whole)]


def balanced(num_layers: int, vocab_size: int) -> Job:
    """A model on a stack that counts the output projection as layers; one layer of it has 36,864 matrix elements."""
    whole = of_layers(8, num_layers=num_layers)
    model = replace(whole.model, vocab_size=vocab_size)
    assert model.num_active_layer_matrix_parameters == num_layers * 36_864
    return replace(whole, model=model, stack=Stack(balances_stages=True))


def test_a_balancing_stack_gives_the_stage_with_the_output_projection_fewer_layers_unless_the_layout_says() -> None:
    evenly, by_cost = of_layers(8), balanced(16, vocab_size=1152)  # a projection of two layers' worth
    assert layers_of_ranks(pipeline(2), evenly) == [8, 8]
    assert layers_of_ranks(pipeline(2), by_cost) == [9, 7]
    # 33.2 layers' worth on 8 ranks: 5, 4, 4, 4, 4, 4, 5 and what is left
    assert layers_of_ranks(pipeline(8), balanced(32, vocab_size=691)) == [5, 2]
    layout = Layout(pipeline_parallel_degree=2, last_stage_less_layers=2)
    assert layers_of_ranks(LayoutColumns.from_layouts([layout]), balanced(16, vocab_size=1152)) == [9, 7, 7]


@pytest.mark.parametrize("num_layers", [8, 13, 16])
@pytest.mark.parametrize("vocab_size", [64, 1152, 9216])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("balances", [False, True])
def test_all_ranks_together_hold_every_layer_once(num_layers: int, vocab_size: int, ranks: int, balances: bool) -> None:
    whole = replace(balanced(num_layers, vocab_size), stack=Stack(balances_stages=balances))
    # of up to three ranks, all are looked at, some twice
    layers = {int(load.rank[0]): int(load.num_layers[0]) for load in fullest_candidates(pipeline(ranks), whole)}
    assert len(layers) == ranks
    assert sum(layers.values()) == num_layers


def test_the_second_rank_is_looked_at_for_memory_and_where_the_ends_are_smaller() -> None:
    assert [int(load.rank[0]) for load in fullest_candidates(pipeline(4), of_layers(8))] == [0, 3, 1]
    assert [int(load.rank[0]) for load in fullest_candidates(pipeline(1), of_layers(8))] == [0, 0, 0]
    plain = Layout(pipeline_parallel_degree=4)
    smaller = replace(plain, first_stage_less_layers=2, last_stage_less_layers=2)
    first, last, second = slowest_candidates(LayoutColumns.from_layouts([smaller, plain]), of_layers(8))
    assert first.num_layers.tolist() == [3, 4]
    assert last.num_layers.tolist() == [3, 4]
    assert (second.rank.tolist(), second.num_layers.tolist()) == ([1, 0], [5, 4])


@pytest.mark.parametrize(
    ("schedule", "stages_per_rank", "kept"), [(ZERO_BUBBLE, 2, 4.0), (DUALPIPEV, 2, (2 * 4 + 1) / 2)]
)
def test_zero_bubble_schedules_of_several_stages_keep_as_much_on_every_rank(
    schedule: PipelineSchedule, stages_per_rank: int, kept: float
) -> None:
    ranks = slowest_candidates(pipeline(4, schedule, stages_per_rank), of_layers(12))
    assert [float(load.micro_batches_in_flight[0]) for load in ranks] == [kept, kept]
