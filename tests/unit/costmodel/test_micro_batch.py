"""Which tokens the experts of a rank see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.micro_batch import load_factor, own_copies, own_tokens, rows_per_expert, width_split
from tests.builders import big_job, llama_70b
from tests.unit.costmodel.works import columns, first, with_stack

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
