"""Tests of ``autotuner.costmodel.communication.layer_collectives``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ContextExchange
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.communication.collectives import all_gather_s, all_to_all_s, reduce_scatter_s, send_s
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layer_collectives import (
    ExchangeTimes,
    dispatch_s,
    exchange_times,
    exposed_dispatch_s,
    exposed_s,
    layer_tensor_s,
    overlap_share,
)
from autotuner.costmodel.communication.layout_groups import context_group
from tests.builders import big_job, cpu_cluster, h100, llama_70b, tiny_job
from tests.unit.costmodel.test_stage_load import apart
from tests.unit.costmodel.works import columns, first, on_stack, with_stack


def exposed(wire_s: float, window_s: float, num_parts: float) -> float:
    return float(exposed_s(np.array([wire_s]), np.array([window_s]), np.array([num_parts]))[0])


def bucketed_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is reduced when it is computed and the part before it is reduced."""
    reduced_s = 0.0
    for part in range(1, num_parts + 1):
        reduced_s = max(reduced_s, part * window_s / num_parts) + wire_s / num_parts
    return reduced_s - window_s


def prefetched_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is computed when it is gathered, and the next is gathered meanwhile."""
    clock_s = wire_s / num_parts
    for _ in range(num_parts - 1):
        clock_s += max(window_s / num_parts, wire_s / num_parts)
    return clock_s + window_s / num_parts - window_s


def test_the_last_part_is_exposed_and_everything_without_a_window() -> None:
    assert exposed(2.0, 0.0, 4) == 2.0
    assert exposed(2.0, 100.0, 4) == 0.5
    assert exposed(2.0, 100.0, 1) == 2.0


@pytest.mark.parametrize("wire_s", [0.0, 0.5, 1.0, 1.3, 7.0])
@pytest.mark.parametrize("num_parts", [1, 2, 5, 33])
def test_bucketed_reductions_and_prefetched_gathers_follow_one_law(wire_s: float, num_parts: int) -> None:
    # sums of the same terms in another order: rounding only
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(bucketed_s(wire_s, 1.0, num_parts), abs=1e-12)
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(prefetched_s(wire_s, 1.0, num_parts), abs=1e-12)


@pytest.mark.parametrize(("kind", "share"), [("cuda", 1.0), ("rocm", 1.0), ("cpu", 0.0)])
def test_a_core_that_computes_cannot_send_meanwhile(kind: str, share: float) -> None:
    accelerator = cpu_cluster().accelerator if kind == "cpu" else h100(kind=kind)
    assert overlap_share(accelerator) == share


RANKS = 4
BLOCK_BYTES = 2 * 8192 / RANKS * 2 * 8 * 128
"""Keys and values of a rank's tokens, in bf16."""

SUMS_BYTES = 2 * BLOCK_BYTES
"""Their gradients, in fp32."""


def exchange(way: ContextExchange, core_s: float, *, ranks: int = RANKS) -> ExchangeTimes:
    x = columns(Layout(context_parallel_degree=ranks, context_exchange=way))
    return exchange_times(x, big_job(), np.array([core_s]), np.array([2 * core_s]))


def group() -> Group:
    return context_group(columns(Layout(context_parallel_degree=RANKS)), big_job().cluster)


@pytest.mark.parametrize("way", list(ContextExchange))
def test_a_rank_alone_exchanges_nothing(way: ContextExchange) -> None:
    layouts = [Layout(context_exchange=way), Layout(context_parallel_degree=2, context_exchange=way)]
    times = exchange_times(columns(*layouts), big_job(), np.zeros(2), np.zeros(2))
    assert times.forward_s[0] == times.backward_s[0] == 0.0 < times.forward_s[1]
    assert first(exchange(way, 1.0, ranks=1).forward_s) == 0.0


def test_context_ranks_gather_or_pass_heads_or_blocks_as_their_way_says() -> None:
    block_s, both_s, sums_s = (
        first(send_s(np.array([sent]), group())) for sent in (BLOCK_BYTES, BLOCK_BYTES + SUMS_BYTES, SUMS_BYTES)
    )
    bare, hidden = exchange(ContextExchange.RING, 0.0), exchange(ContextExchange.RING, 1.0)
    assert first(bare.forward_s) == pytest.approx((RANKS - 1) * block_s, rel=1e-12)  # rounding
    assert first(bare.backward_s) == pytest.approx((RANKS - 1) * both_s + sums_s, rel=1e-12)  # rounding
    assert first(hidden.forward_s) == 0.0
    assert first(hidden.backward_s) == pytest.approx(sums_s, rel=1e-12)  # the gradients' last way home
    gather_s = first(all_gather_s(np.array([RANKS * BLOCK_BYTES]), group()))
    scatter_s = first(reduce_scatter_s(np.array([RANKS * SUMS_BYTES]), group()))
    for core_s in (0.0, 1.0):
        times = exchange(ContextExchange.ALL_GATHER, core_s)
        assert first(times.forward_s) == pytest.approx(gather_s, rel=1e-12)  # rounding
        assert first(times.backward_s) == pytest.approx(scatter_s, rel=1e-12)  # rounding
    job = on_stack(big_job(), widens_context_gradients=False)
    for way in (ContextExchange.RING, ContextExchange.ALL_GATHER):
        x = columns(Layout(context_parallel_degree=RANKS, context_exchange=way))
        narrow = exchange_times(x, job, np.zeros(1), np.zeros(1))
        assert first(narrow.backward_s) < first(exchange(way, 0.0).backward_s)
        assert first(narrow.forward_s) == first(exchange(way, 0.0).forward_s)
    per_element = 2 * 8192 / RANKS
    sizes = [per_element * width for width in (8192, 8 * 128, 8 * 128, 8192)]
    once_s = sum(first(all_to_all_s(np.array([size]), group())) for size in sizes)
    assert first(exchange(ContextExchange.ALL_TO_ALL, 1.0).forward_s) == pytest.approx(once_s, rel=1e-12)  # rounding
    x = columns(Layout(context_parallel_degree=2))
    times = exchange_times(x, tiny_job(2), np.array([1.0]), np.array([1.0]))
    assert first(times.forward_s) > 0.0


EXPERTS = MixtureOfExperts(num_experts=64, experts_per_token=8, expert_ffn_size=1024)


def job(experts: MixtureOfExperts = EXPERTS, **stack: Any) -> Job:
    return with_stack(replace(big_job(), model=llama_70b(experts=experts)), **stack)


def dispatch(layout: Layout, one: Job) -> float:
    return first(dispatch_s(columns(layout), one))


def test_experts_receive_copies_once_per_rank_and_node_later_where_the_load_is_uneven() -> None:
    assert dispatch(Layout(), job()) == 0.0
    assert dispatch(Layout(tensor_parallel_degree=4, sequence_parallel=True), job(splits_experts=True)) == 0.0
    every, once = (dispatch(apart(32), job(dispatch=way)) for way in ("all_to_all", "deduplicated"))
    # 8 choices name 3.6 of 4 nodes, and of the tokens a rank sends to the 24 ranks of others as many leave its node
    assert once == pytest.approx(every * 3.6 / 8, rel=0.1)
    even, uneven = (dispatch(apart(64), job(expert_imbalance=imbalance)) for imbalance in (1.0, 1.5))
    assert 1.3 * even < uneven < 1.5 * even  # but for latency
    layout = apart(2, tensor_parallel_degree=4, sequence_parallel=True)
    whole, split = (dispatch(layout, job(splits_experts=flag)) for flag in (False, True))
    assert split > 2 * whole
    layout = columns(apart(2, tensor_parallel_degree=4, sequence_parallel=True))
    dense = first(layer_tensor_s(layout, job(), sparse=False))
    routed = first(layer_tensor_s(layout, job(), sparse=True))
    shared = first(layer_tensor_s(layout, job(replace(EXPERTS, num_shared_experts=1)), sparse=True))
    assert (routed, shared) == (dense / 2, dense)
    sent, computed = np.array([1.0, 1.0]), np.array([10.0, 0.5])
    assert exposed_dispatch_s(job(hides_dispatch=0.8), sent, computed) == pytest.approx([0.2, 0.5])
    assert exposed_dispatch_s(job(), sent, computed).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("way", ["all_to_all", "deduplicated", "all_gather"])
def test_experts_on_other_nodes_are_far(way: Any) -> None:
    near, far = (dispatch(apart(ranks), job(dispatch=way)) for ranks in (8, 16))
    assert far > 1.5 * near  # NVLink against a network port of a ninth of its bandwidth
