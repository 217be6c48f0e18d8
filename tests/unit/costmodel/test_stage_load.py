from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_layers, stages_of_rank
from autotuner.costmodel.micro_batch import load_factor, own_copies, own_tokens, rows_per_expert, width_split
from autotuner.costmodel.stages import held_layers, layers_not_recomputed, model_layers_not_recomputed
from tests.builders import big_job, llama_70b, tiny_job, tiny_model
from tests.unit.costmodel.works import columns, first, with_stack

# ---------------------------------------------------------------- Tests of `autotuner.costmodel.stages`
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
        dense, sparse = held_layers(x, job, np.array([rank]))
        assert [int(dense[0]), int(sparse[0])] == kinds(job, layers)


@given(piped())
def test_of_each_stage_all_but_every_nth_layer_from_the_first_do_not_recompute(drawn: tuple[Layout, Job]) -> None:
    layout, job = drawn
    x, total = LayoutColumns.from_layouts([layout]), np.zeros(2, dtype=np.int64)
    for rank in range(layout.pipeline_parallel_degree):
        not_recomputed = [
            layer
            for stage in layers_of(layout, job, rank)
            for place, layer in enumerate(stage)
            if place % layout.recompute_every
        ]
        found = [int(count[0]) for count in layers_not_recomputed(x, job, np.array([rank]))]
        assert found == kinds(job, not_recomputed)
        total += found
    assert [int(count[0]) for count in model_layers_not_recomputed(x, job)] == total.tolist()


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


def test_ranks_with_whole_experts_share_the_tokens_of_their_tensor_group() -> None:
    x = columns(apart(2, tensor_parallel_degree=4))
    whole, split = (first(own_tokens(x, job(splits_experts=flag))) for flag in (False, True))
    assert split == 4 * whole


def test_several_experts_on_a_rank_even_out() -> None:
    uneven = job(expert_imbalance=1.4)
    alone, several, all_of_them = (first(load_factor(columns(apart(ranks)), uneven, EXPERTS)) for ranks in (16, 4, 1))
    assert alone == pytest.approx(1.4)
    assert several == pytest.approx(1.2)  # of four experts: half the excess
    assert all_of_them == 1.0


def test_a_capacity_bounds_the_fullest_rank_and_is_the_load_where_experts_are_filled_up() -> None:
    bounded = replace(EXPERTS, capacity_factor=1.1)
    filled = replace(EXPERTS, capacity_factor=1.5, pads_to_capacity=True)
    loads = [first(load_factor(columns(apart(16)), job(e, expert_imbalance=1.4), e)) for e in (bounded, filled)]
    assert loads == [1.1, 1.5]


def test_as_many_copies_leave_an_average_rank_as_experts_see_tokens() -> None:
    assert first(own_copies(columns(apart(4)), job(), EXPERTS)) == 2 * job().workload.seq_len
