"""The event simulator: by hand on two ranks, and against the closed forms of equal stages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.schedules.named import gpipe, interleaved_1f1b, one_f_one_b, zb_h1, zb_h2, zbv
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import (
    BESIDE_COMPUTE,
    BLOCKING,
    BLOCKING_IN_TURN,
    PassTimes,
    Transport,
    delegated,
    simulate,
)

RANKS = st.integers(2, 6)
PASS = st.integers(1, 30)  # whole numbers keep sums exact, so that makespans can be compared with ==


def makespan(schedule: Schedule, forward: float, input_: float, weight: float, send: float = 0.0) -> float:
    return simulate(schedule, PassTimes.equal(schedule.num_stages, forward, input_, weight, send_s=send)).makespan_s


def test_passes_wait_for_their_neighbours_and_take_times_of_their_own() -> None:
    timeline = simulate(one_f_one_b(2, 1), PassTimes.equal(2, 1.0, 1.0, 2.0, send_s=10.0))
    assert timeline.start_s == ((0.0, 25.0), (11.0, 12.0))
    assert timeline.end_s == ((1.0, 28.0), (12.0, 15.0))
    assert timeline.busy_s == (4.0, 4.0)
    timeline = simulate(zb_h1(2, 1), PassTimes.equal(2, 1.0, 1.0, 2.0))
    assert timeline.start_s[0] == (0.0, 3.0, 4.0)
    times = PassTimes(forward_s=(1.0, 5.0), input_s=(2.0, 7.0), weight_s=(0.0, 0.0), send_s=(0.0,))
    assert simulate(one_f_one_b(2, 3), times).makespan_s == 1 + 3 * (5 + 7) + 2
    turning = PassTimes(forward_s=(1.0,) * 4, input_s=(1.0,) * 4, weight_s=(0.0,) * 4, send_s=(0.0, 50.0, 0.0))
    assert simulate(zbv(2, 1), turning) == simulate(zbv(2, 1), replace(turning, send_s=(0.0, 0.0, 0.0)))


def test_a_blocking_send_holds_its_rank_and_a_shared_link_carries_one_at_a_time() -> None:
    times = PassTimes.equal(2, 1.0, 1.0, 0.0, send_s=10.0)
    beside, blocking = (simulate(gpipe(2, 2), times, way) for way in (BESIDE_COMPUTE, BLOCKING))
    assert beside.start_s[0][:2] == (0.0, 1.0)
    assert blocking.start_s[0][:2] == (0.0, 11.0)
    times = PassTimes.equal(2, 1.0, 1.0, 0.0, send_s=10.0)
    ran = simulate(one_f_one_b(2, 2), times, Transport(shares_link=True))
    # 1 -> 11 the first forward, 11 -> 21 the second, and only then, although ready at 12, the first backward
    assert ran.start_s == ((0.0, 1.0, 31.0, 41.0), (11.0, 12.0, 21.0, 22.0))
    both = simulate(one_f_one_b(2, 2), times, BLOCKING_IN_TURN)
    assert both.start_s == ((0.0, 11.0, 32.0, 44.0), (11.0, 12.0, 32.0, 33.0))  # rank 1 waits for its turn, too


@given(p=RANKS, m=st.integers(1, 12), passes=st.tuples(PASS, PASS, PASS), c=st.integers(0, 40), blocks=st.booleans())
def test_no_transport_is_faster_than_sends_beside_compute(
    p: int, m: int, passes: tuple[int, int, int], c: int, *, blocks: bool
) -> None:
    times = PassTimes.equal(p, *map(float, passes), send_s=float(c))
    least_s = simulate(zb_h1(p, m), times).makespan_s
    ways = (Transport(blocks=blocks), Transport(blocks=blocks, shares_link=True), delegated(2), delegated(m))
    took_s = [simulate(zb_h1(p, m), times, way).makespan_s for way in ways]
    assert min(took_s) >= least_s
    assert took_s[-1] == least_s


@given(p=RANKS, m=st.integers(1, 12), passes=st.tuples(PASS, PASS, PASS))
def test_links_without_delay_may_be_shared(p: int, m: int, passes: tuple[int, int, int]) -> None:
    times = PassTimes.equal(p, *map(float, passes))
    assert simulate(zb_h1(p, m), times, BLOCKING_IN_TURN) == simulate(zb_h1(p, m), times)


def test_delegates_carry_one_transfer_at_a_time_at_an_overhead_and_two_copies() -> None:
    times = PassTimes.equal(2, 1.0, 1.0, 0.0, send_s=10.0)
    two = simulate(gpipe(2, 4), times, delegated(2))
    assert two.start_s[0][:4] == (0.0, 1.0, 2.0, 3.0)  # nothing holds the sender
    assert two.start_s[1][:4] == (11.0, 12.0, 21.0, 22.0)  # the third waits for the delegate of the first
    assert simulate(gpipe(2, 4), times, delegated(4)) == simulate(gpipe(2, 4), times)
    times = PassTimes.equal(2, 1.0, 1.0, 0.0, send_s=10.0)
    ran = simulate(gpipe(2, 1), times, delegated(1, overhead_s=0.5, copy_s=0.25))
    assert (ran.start_s[0][0], ran.end_s[0][0]) == (0.0, 1.25)
    assert ran.start_s[1][0] == 1.25 + 10.5 + 0.25
    assert ran.busy_s == (2.0, 2.0)


@pytest.mark.parametrize(
    ("number", "overhead_s", "complaint"), [(0, 0.0, "num_delegates = 0"), (1, -1.0, "overhead_s = -1.0")]
)
def test_a_transport_that_could_carry_nothing_is_refused(number: int, overhead_s: float, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        delegated(number, overhead_s=overhead_s)


def test_transports_and_times_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="shares_link"):
        Transport(shares_link=True, num_delegates=2)
    with pytest.raises(InvalidInput, match="one entry per stage"):
        simulate(gpipe(2, 2), PassTimes.equal(3, 1.0, 1.0, 1.0))


def test_ranks_that_wait_in_a_circle_are_named() -> None:
    circle = Schedule.parse("0F1 0F0 0B0 0B1\n1F0 1B0 1F1 1B1")
    swapped = Schedule.parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    assert makespan(circle, 1.0, 1.0, 1.0) > 0
    with pytest.raises(InvalidInput, match="wait for one another in a circle"):
        makespan(swapped, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [({"input_s": (1.0,)}, "2 values for 2 stages"), ({"send_s": ()}, "1 values"), ({"send_s": (-1.0,)}, "negative")],
)
def test_pass_times_fit_together(changes: dict[str, tuple[float, ...]], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        replace(PassTimes.equal(2, 1.0, 1.0, 1.0), **changes)


@given(p=RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS)
def test_gpipe_and_1f1b_idle_for_one_micro_batch_through_all_other_ranks(
    p: int, m: int, f: int, i: int, w: int
) -> None:
    # arXiv 2104.04473, section 2.2
    assert makespan(gpipe(p, m), f, i, w) == (m + p - 1) * (f + i + w)
    assert makespan(one_f_one_b(p, m), f, i, w) == (m + p - 1) * (f + i + w)


@given(p=RANKS, v=st.integers(2, 4), rounds=st.integers(1, 4), f=PASS, i=PASS, w=PASS)
def test_interleaved_1f1b_idles_for_one_stage_of_each_other_rank(
    p: int, v: int, rounds: int, f: int, i: int, w: int
) -> None:
    # arXiv 2104.04473, section 2.3; f, i and w are those of one of v stages
    assert makespan(interleaved_1f1b(p, v, rounds * p), f, i, w) == (rounds * p * v + p - 1) * (f + i + w)


@given(p=RANKS, more=st.integers(0, 20), f=PASS, i=PASS, w=PASS)
def test_zb_h1_defers_weight_gradients_into_the_bubble(p: int, more: int, f: int, i: int, w: int) -> None:
    # F + I - W is arXiv 2401.10241, table 1; with W > F or W > I the chain of I or of F alone is longer
    m = p + more
    assert makespan(zb_h1(p, m), f, i, w) == m * (f + i + w) + (p - 1) * max(f + i - w, f, i)


@given(p=RANKS, more=st.integers(0, 20), f=PASS, i=PASS, w=PASS)
def test_zb_h2_leaves_only_the_ranks_starting_one_after_another(p: int, more: int, f: int, i: int, w: int) -> None:
    # the paper counts each rank from its own start: F + I - 2 W, 0 for equal passes
    m = 2 * p - 1 + more
    assert makespan(zb_h2(p, m), f, i, w) == m * (f + i + w) + (p - 1) * max(f, f + i - 2 * w, i - f)


@given(p=RANKS, more=st.integers(0, 20), f=PASS, slower=st.integers(0, 10), faster=st.integers(0, 10))
def test_a_v_idles_for_half_the_chain_of_input_gradients(p: int, more: int, f: int, slower: int, faster: int) -> None:
    # F <= I and W <= I, as of transformer layers; the times are those of one of the two stages of a rank
    m, i = 2 * p - 1 + more, f + slower
    w = max(1, i - faster)
    assert makespan(zbv(p, m), f, i, w) == 2 * m * (f + i + w) + (p - 1) * max(i, 2 * (i - w))


@given(p=RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS, c=PASS)
def test_1f1b_has_no_slack_for_sends(p: int, m: int, f: int, i: int, w: int, c: int) -> None:
    waits = 2 * (p - 1) + 2 * (m - 1 - -(-(m - 1) // p))  # of every p micro-batches after the first, p - 1 wait
    assert makespan(one_f_one_b(p, m), f, i, w, c) == (m + p - 1) * (f + i + w) + waits * c


@given(p=RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS, c=PASS)
def test_gpipe_pays_sends_only_to_fill_and_to_drain(p: int, m: int, f: int, i: int, w: int, c: int) -> None:
    assert makespan(gpipe(p, m), f, i, w, c) == (m + p - 1) * (f + i + w) + 2 * (p - 1) * c
