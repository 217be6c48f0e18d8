"""What context ranks wait for, by the way in which they exchange."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.choices import ContextExchange
from autotuner.core.layout import Layout
from autotuner.costmodel.communication.collectives import all_gather_s, all_to_all_s, reduce_scatter_s, send_s
from autotuner.costmodel.communication.context import ExchangeTimes, exchange_times
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.process_groups import context_group
from tests.builders import big_job, tiny_job
from tests.unit.costmodel.memory_jobs import on_stack
from tests.unit.costmodel.works import columns, first

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


def test_a_ring_hides_its_sends_under_the_attention_to_the_block_before() -> None:
    block_s, both_s, sums_s = (
        first(send_s(np.array([sent]), group())) for sent in (BLOCK_BYTES, BLOCK_BYTES + SUMS_BYTES, SUMS_BYTES)
    )
    bare, hidden = exchange(ContextExchange.RING, 0.0), exchange(ContextExchange.RING, 1.0)
    assert first(bare.forward_s) == pytest.approx((RANKS - 1) * block_s, rel=1e-12)  # rounding
    assert first(bare.backward_s) == pytest.approx((RANKS - 1) * both_s + sums_s, rel=1e-12)  # rounding
    assert first(hidden.forward_s) == 0.0
    assert first(hidden.backward_s) == pytest.approx(sums_s, rel=1e-12)  # the gradients' last way home


def test_a_gather_is_one_collective_each_way_that_nothing_hides() -> None:
    gather_s = first(all_gather_s(np.array([RANKS * BLOCK_BYTES]), group()))
    scatter_s = first(reduce_scatter_s(np.array([RANKS * SUMS_BYTES]), group()))
    for core_s in (0.0, 1.0):
        times = exchange(ContextExchange.ALL_GATHER, core_s)
        assert first(times.forward_s) == pytest.approx(gather_s, rel=1e-12)  # rounding
        assert first(times.backward_s) == pytest.approx(scatter_s, rel=1e-12)  # rounding


def test_a_stack_that_does_not_widen_gradients_sends_them_as_the_keys_and_values() -> None:
    job = on_stack(big_job(), widens_context_gradients=False)
    for way in (ContextExchange.RING, ContextExchange.ALL_GATHER):
        x = columns(Layout(context_parallel_degree=RANKS, context_exchange=way))
        narrow = exchange_times(x, job, np.zeros(1), np.zeros(1))
        assert first(narrow.backward_s) < first(exchange(way, 0.0).backward_s)
        assert first(narrow.forward_s) == first(exchange(way, 0.0).forward_s)


def test_heads_go_in_four_all_to_alls_of_a_ranks_own_tokens() -> None:
    per_element = 2 * 8192 / RANKS
    sizes = [per_element * width for width in (8192, 8 * 128, 8 * 128, 8192)]
    once_s = sum(first(all_to_all_s(np.array([size]), group())) for size in sizes)
    assert first(exchange(ContextExchange.ALL_TO_ALL, 1.0).forward_s) == pytest.approx(once_s, rel=1e-12)  # rounding


def test_on_a_cpu_the_core_that_attends_also_sends() -> None:
    x = columns(Layout(context_parallel_degree=2))
    times = exchange_times(x, tiny_job(2), np.array([1.0]), np.array([1.0]))
    assert first(times.forward_s) > 0.0
