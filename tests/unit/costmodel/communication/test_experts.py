"""Sending tokens to their experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.communication.experts import dispatch_s, exposed_dispatch_s
from autotuner.costmodel.communication.tensor import layer_tensor_s
from tests.builders import big_job, llama_70b
from tests.unit.costmodel.test_routing import apart
from tests.unit.costmodel.works import columns, first, with_stack

EXPERTS = MixtureOfExperts(num_experts=64, experts_per_token=8, expert_ffn_size=1024)


def job(experts: MixtureOfExperts = EXPERTS, **stack: Any) -> Job:
    return with_stack(replace(big_job(), model=llama_70b(experts=experts)), **stack)


def dispatch(layout: Layout, one: Job) -> float:
    return first(dispatch_s(columns(layout), one))


def test_a_rank_that_holds_every_expert_sends_nothing() -> None:
    assert dispatch(Layout(), job()) == 0.0
    assert dispatch(Layout(tensor_parallel_degree=4, sequence_parallel=True), job(splits_experts=True)) == 0.0


@pytest.mark.parametrize("way", ["all_to_all", "deduplicated", "all_gather"])
def test_experts_on_other_nodes_are_far(way: Any) -> None:
    near, far = (dispatch(apart(ranks), job(dispatch=way)) for ranks in (8, 16))
    assert far > 1.5 * near  # NVLink against a network port of a ninth of its bandwidth


def test_one_copy_per_rank_and_node_is_less_than_one_per_expert() -> None:
    every, once = (dispatch(apart(32), job(dispatch=way)) for way in ("all_to_all", "deduplicated"))
    # 8 choices name 3.6 of 4 nodes, and of the tokens a rank sends to the 24 ranks of others as many leave its node
    assert once == pytest.approx(every * 3.6 / 8, rel=0.1)


def test_an_uneven_load_takes_longer_to_arrive() -> None:
    even, uneven = (dispatch(apart(64), job(expert_imbalance=imbalance)) for imbalance in (1.0, 1.5))
    assert 1.3 * even < uneven < 1.5 * even  # but for latency


def test_split_experts_meet_the_copies_of_their_whole_tensor_group() -> None:
    layout = apart(2, tensor_parallel_degree=4, sequence_parallel=True)
    whole, split = (dispatch(layout, job(splits_experts=flag)) for flag in (False, True))
    assert split > 2 * whole


def test_ranks_with_whole_experts_sum_nothing_behind_them_but_shared_ones() -> None:
    layout = columns(apart(2, tensor_parallel_degree=4, sequence_parallel=True))
    dense = first(layer_tensor_s(layout, job(), sparse=False))
    routed = first(layer_tensor_s(layout, job(), sparse=True))
    shared = first(layer_tensor_s(layout, job(replace(EXPERTS, num_shared_experts=1)), sparse=True))
    assert (routed, shared) == (dense / 2, dense)


def test_another_micro_batch_hides_no_more_than_it_computes() -> None:
    sent, computed = np.array([1.0, 1.0]), np.array([10.0, 0.5])
    assert exposed_dispatch_s(job(hides_dispatch=0.8), sent, computed) == pytest.approx([0.2, 0.5])
    assert exposed_dispatch_s(job(), sent, computed).tolist() == [1.0, 1.0]
