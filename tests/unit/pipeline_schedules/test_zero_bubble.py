"""Zero-bubble schedules of several stages per rank: what they keep, and how long they idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import PipelineSchedule
from autotuner.core.errors import InvalidInput
from autotuner.schedules.named import dualpipev, zb_h1, zb_interleaved
from autotuner.schedules.schedule import Kind
from autotuner.schedules.simulate import PassTimes, simulate
from bench.schedule_gap import Case, predicted_s, simulated_s

RANKS = st.integers(1, 6)
PASS = st.integers(1, 30)


@given(p=RANKS, m=st.integers(1, 20))
def test_with_one_stage_per_rank_it_is_zb_h1(p: int, m: int) -> None:
    assert zb_interleaved(p, 1, m) == zb_h1(p, m)


@given(p=RANKS, v=st.integers(2, 4), rounds=st.integers(1, 4), f=PASS, i=PASS, w=PASS)
def test_interleaved_zero_bubble_idles_as_zb_h1_does_for_one_of_its_stages(
    p: int, v: int, rounds: int, f: int, i: int, w: int
) -> None:
    times = PassTimes.equal(p * v, f, i, w)
    busy = rounds * p * v * (f + i + w)
    assert simulate(zb_interleaved(p, v, rounds * p), times).makespan_s == busy + (p - 1) * max(f + i - w, f, i)


def test_interleaved_zero_bubble_keeps_a_micro_batch_of_every_rank_whole() -> None:
    assert zb_interleaved(4, 3, 12).peak_in_flight() == (12, 12, 12, 12)  # p v stages' passes


def test_interleaved_zero_bubble_wants_whole_rounds_of_micro_batches() -> None:
    with pytest.raises(InvalidInput, match="multiple of the 4 pipeline ranks; nearest legal value: 8"):
        zb_interleaved(4, 2, 10)


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 8), (4, 8), (6, 20)])
def test_dualpipev_keeps_one_pass_more_than_there_are_stages(p: int, m: int) -> None:
    assert dualpipev(p, m).peak_in_flight() == (2 * p + 1,) * p  # PP + 1, README of deepseek-ai/DualPipe


def test_dualpipev_runs_in_the_order_of_pytorch() -> None:
    # as torch.distributed.pipelining 2.13's ScheduleDualPipeV orders the first of 2 ranks with 4 micro-batches
    order = "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"
    assert str(dualpipev(2, 4)).splitlines()[0] == order


def test_dualpipev_wants_a_micro_batch_for_every_stage() -> None:
    with pytest.raises(InvalidInput, match="not be fewer than the 8 stages; nearest legal value: 8"):
        dualpipev(4, 7)


@given(p=st.integers(2, 6), more=st.integers(0, 8), f=PASS, slower=st.integers(0, 10), faster=st.integers(0, 10))
def test_the_published_bubble_is_that_of_the_simulator_and_an_input_gradient_per_pair(
    p: int, more: int, f: int, slower: int, faster: int
) -> None:
    """F <= I and W <= F, as of transformer layers, so that pairs that end together delay each rank by a gradient."""
    i, w = f + slower, max(1, f - faster)
    case = Case(
        pipeline_schedule=PipelineSchedule.DUALPIPEV,
        num_ranks=p,
        stages_per_rank=2,
        num_micro_batches=2 * p + more,
        times=PassTimes.equal(2 * p, f, i, w),
    )
    idle = predicted_s(case, blocking_sends=False) - 2 * case.num_micro_batches * (f + i + w)
    assert idle == pytest.approx((p - 1) * (f + 2 * i - w), rel=1e-9)  # the difference of two long sums
    apart = simulated_s(case, blocking_sends=False) - 2 * case.num_micro_batches * (f + i + w)
    assert (p - 1) * (f + i - w) <= apart <= (p - 1) * (f + 2 * i - w)


def test_weight_gradients_of_dualpipev_are_deferred_only_at_its_ends() -> None:
    kinds = [action.kind for action in dualpipev(4, 16).ranks[0]]
    assert kinds.count(Kind.WEIGHT) == kinds.count(Kind.INPUT) < kinds.count(Kind.BACKWARD)
