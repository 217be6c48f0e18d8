"""Pipeline schedules: what their ranks do, and how long the event simulator says that it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import PipelineSchedule
from autotuner.core.errors import InvalidInput
from autotuner.schedules.planner import adaptive, even_warm_up, named_schedule, plan, warm_up, within
from autotuner.schedules.schedule import Action, Kind, Schedule
from autotuner.schedules.simulate import (
    BESIDE_COMPUTE,
    BLOCKING,
    BLOCKING_IN_TURN,
    PassTimes,
    Transport,
    delegated,
    simulate,
)
from autotuner.schedules.standard_schedules import (
    dualpipev,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_h2,
    zb_interleaved,
    zbv,
)
from tests.pipelines import Case, predicted_s, simulated_s


# ---------------------------------------------------------------- actions
@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ranks = draw(st.integers(1, 6))
    rounds = draw(st.integers(1, 4))
    builders = [gpipe, one_f_one_b, zb_h1, zb_h2, zbv]
    builder = draw(st.sampled_from([*builders, None]))
    if builder is None:
        return interleaved_1f1b(ranks, draw(st.integers(2, 4)), ranks * rounds)
    return builder(ranks, draw(st.integers(1, 20)))


@given(schedules())
def test_a_schedule_parses_to_what_was_printed(schedule: Schedule) -> None:
    assert Schedule.parse(str(schedule)) == schedule


@given(schedules())
def test_no_ranks_wait_for_one_another_in_a_circle(schedule: Schedule) -> None:
    times = PassTimes.equal(schedule.num_stages, 1.0, 1.0, 1.0)
    assert simulate(schedule, times).makespan_s >= 3.0 * schedule.num_micro_batches


def test_schedules_order_their_actions_as_published() -> None:
    assert str(Action(2, Kind.INPUT, 11)) == "2I11"
    assert Action.parse("2I11") == Action(2, Kind.INPUT, 11)
    # arXiv 2104.04473, figure 4, for two ranks
    assert str(one_f_one_b(2, 3)) == "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2"
    first, last = str(interleaved_1f1b(2, 2, 2)).splitlines()
    assert first == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"
    assert last == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"
    # as torch.distributed.pipelining 2.13's ScheduleZBVZeroBubble orders 2 ranks and 3 micro-batches
    last = "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"
    assert str(zbv(2, 3)).splitlines()[1] == last
    assert zbv(3, 9).rank_of == {0: 0, 1: 1, 2: 2, 3: 2, 4: 1, 5: 0}
    assert zb_h1(4, 12).peak_in_flight(Kind.INPUT) == one_f_one_b(4, 12).peak_in_flight()
    assert zb_h2(4, 12).peak_in_flight(Kind.INPUT) == (7, 5, 3, 1)


@pytest.mark.parametrize("text", ["F0", "0X0", "0F", "0F0 ", "-1F0"])
def test_other_words_are_no_actions(text: str) -> None:
    with pytest.raises(InvalidInput, match="for example 0F0"):
        Action.parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0 0F0 0B0", "run only once"),
        ("0F0 0F1 0B0", "or its two parts I and W, in this order"),
        ("0B0 0F0", "or its two parts I and W, in this order"),
        ("0F0 0W0 0I0", "or its two parts I and W, in this order"),
        ("0F0 0I0", "or its two parts I and W, in this order"),
        ("0F0 0B0 0W0", "or its two parts I and W, in this order"),
        ("0F0 0B0\n2F0 2B0", "without a gap"),
        ("0F0 0B0\n0F1 0B1", "each stage must be on one rank"),
        ("0F0 0B0\n\n1F0 1B0", "each rank must have a stage"),
        ("", "without a gap"),
    ],
)
def test_a_schedule_with_missing_double_or_misordered_actions_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        Schedule.parse(text)


@pytest.mark.parametrize(
    ("schedule", "kept"),
    [
        (gpipe(4, 12), (12, 12, 12, 12)),
        (one_f_one_b(4, 12), (4, 3, 2, 1)),  # arXiv 2104.04473, section 2.2
        (interleaved_1f1b(4, 2, 12), (11, 9, 7, 5)),  # p v + p - 1 on the first rank, arXiv 2205.05198, 4.2.3
        (zb_h1(4, 12), (4, 4, 4, 4)),  # p, arXiv 2401.10241, table 1
        (zb_h2(4, 12), (7, 7, 7, 7)),  # 2 p - 1, the same
        (zbv(4, 12), (8, 8, 8, 8)),  # 2 p half stages, section 6
    ],
)
def test_no_rank_keeps_more_activations_than_the_paper_of_its_schedule_says(
    schedule: Schedule, kept: tuple[int, ...]
) -> None:
    assert schedule.peak_in_flight() == kept


def test_sizes_and_times_that_no_schedule_has_are_refused() -> None:
    for sizes in ((0, 4), (4, 0)):
        with pytest.raises(InvalidInput, match="must be 1 or more"):
            zb_h1(*sizes)
    with pytest.raises(InvalidInput, match="multiple of the number of pipeline ranks, 4; nearest legal value: 8"):
        interleaved_1f1b(4, 2, 10)
    with pytest.raises(InvalidInput, match="above 0"):
        warm_up(PassTimes.equal(2, 0.0, 1.0, 1.0))


# ---------------------------------------------------------------- adaptive
EQUAL = PassTimes.equal(4, 10.0, 10.0, 10.0)


def test_every_stage_runs_two_forwards_further_ahead_than_the_next_and_more_before_a_slow_link() -> None:
    assert warm_up(EQUAL) == (7, 5, 3, 1)
    assert warm_up(replace(EQUAL, send_s=(0.0, 11.0, 0.0))) == (9, 7, 3, 1)


@pytest.mark.parametrize(
    ("num_micro_batches", "counts", "complaint"),
    [
        (12, (3, 1), "4 values"),
        (12, (1, 2, 1, 1), "must not increase"),
        (12, (1, 1, 1, 0), "1 or more"),
        (0, (4, 3, 2, 1), "1 or more"),
    ],
)
def test_plans_that_could_not_run_are_refused(num_micro_batches: int, counts: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        adaptive(EQUAL, num_micro_batches, counts)


@given(
    passes=st.lists(st.tuples(*[st.floats(1, 30)] * 3), min_size=2, max_size=5),
    delay=st.floats(0, 60),
    micro_batches=st.integers(1, 16),
)
def test_every_stage_runs_its_warm_up_and_then_its_first_backward(
    passes: list[tuple[float, float, float]], delay: float, micro_batches: int
) -> None:
    forward, input_, weight = zip(*passes, strict=True)
    times = PassTimes(forward_s=forward, input_s=input_, weight_s=weight, send_s=(delay,) * (len(passes) - 1))
    counts = warm_up(times)
    schedule = adaptive(times, micro_batches, counts)
    simulate(schedule, times)  # no circle
    for stage, actions in enumerate(schedule.ranks):
        ahead = min(counts[stage], micro_batches)
        kinds = [action.kind for action in actions]
        assert kinds[: ahead + 1] == [Kind.FORWARD] * ahead + [Kind.INPUT]


def test_ready_passes_run_in_the_order_input_gradient_forward_weight_gradient_within_the_slack() -> None:
    # the last of two stages: everything arrives at once, so forwards hold weight gradients back
    last = adaptive(PassTimes.equal(2, 10.0, 10.0, 10.0), 3, (3, 1)).ranks[1]
    assert " ".join(map(str, last)) == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"
    first = adaptive(PassTimes.equal(2, 1.0, 10.0, 1.0), 5, (2, 1)).ranks[0]
    assert first[2] == Action(0, Kind.INPUT, 0)


# ---------------------------------------------------------------- Schedules by the names that layouts give them
def test_a_schedule_follows_from_its_sizes_and_the_adaptive_one_is_planned_for_equal_passes() -> None:
    assert named_schedule(PipelineSchedule.ONE_F_ONE_B, 4, 1, 8) == one_f_one_b(4, 8)
    equal = PassTimes.equal(4, 1.0, 1.0, 1.0)
    assert named_schedule(PipelineSchedule.ADAPTIVE, 4, 1, 12) == plan(equal, 12).schedule


def test_the_adaptive_schedule_keeps_to_the_memory_of_its_stages() -> None:
    slow = PassTimes.equal(4, 10.0, 10.0, 10.0, send_s=20.0)
    assert max(plan(slow, 12, most_in_flight=(6, 6, 6, 6)).schedule.peak_in_flight()) == 6


SLOW = replace(EQUAL, send_s=(20.0, 0.0, 0.0))


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[PassTimes, int]:
    passes = draw(st.lists(st.tuples(*[st.floats(1, 30)] * 3), min_size=1, max_size=5))
    delays = draw(st.lists(st.floats(0, 60), min_size=len(passes) - 1, max_size=len(passes) - 1))
    forward, input_, weight = zip(*passes, strict=True)
    times = PassTimes(forward_s=forward, input_s=input_, weight_s=weight, send_s=tuple(delays))
    return times, draw(st.integers(1, 16))


def test_a_plan_idles_only_while_ranks_start_and_hides_slow_links_behind_more_forwards() -> None:
    planned = plan(SLOW, 12)
    assert (planned.warm_up, planned.makespan_s) == ((9, 5, 3, 1), 410)
    assert planned.planned_send_s == SLOW.send_s
    planned = plan(EQUAL, 12)
    assert (planned.warm_up, planned.makespan_s) == ((7, 5, 3, 1), 390)
    assert planned.makespan_s == simulate(zb_h2(4, 12), EQUAL).makespan_s
    assert plan(SLOW, 40).schedule.peak_in_flight() == (9, 9, 9, 9)
    assert plan(EQUAL, 12, extra_slack=1).warm_up == (10, 7, 4, 1)
    with pytest.raises(InvalidInput, match="extra_slack"):
        plan(EQUAL, 12, extra_slack=-1)
    with pytest.raises(InvalidInput, match="num_micro_batches"):
        plan(EQUAL, 0)


def test_slack_that_memory_limits_is_spread_over_the_links_the_first_first() -> None:
    assert even_warm_up(4, 7) == (7, 5, 3, 1)
    assert even_warm_up(4, 6) == (6, 4, 2, 1)
    assert even_warm_up(4, 2) == (2, 1, 1, 1)
    assert even_warm_up(1, 3) == (3,)
    assert within((9, 7, 5, 1), (12, 4, 6, 6)) == (9, 4, 4, 1)


@pytest.mark.parametrize(
    ("most", "nearest"), [((4, 0, 4, 4), "nearest legal value: (4, 1, 4, 4)"), ((4, 4), "4 values")]
)
def test_a_stage_that_can_keep_nothing_is_refused_with_the_nearest_limit(most: tuple[int, ...], nearest: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan(EQUAL, 12, most_in_flight=most)
    assert nearest in str(refused.value)


@given(pipeline=pipelines(), slack=st.integers(0, 2))
def test_no_plan_takes_longer_than_the_schedules_that_know_no_delays(
    pipeline: tuple[PassTimes, int], slack: int
) -> None:
    times, num_micro_batches = pipeline
    planned = plan(times, num_micro_batches, extra_slack=slack)
    for fixed in (zb_h1, zb_h2):
        schedule = fixed(len(times.forward_s), num_micro_batches)
        assert planned.makespan_s <= simulate(schedule, times).makespan_s * (1 + 1e-9)
    assert planned.makespan_s == pytest.approx(simulate(planned.schedule, times).makespan_s, rel=1e-12)


@given(pipeline=pipelines(), data=st.data())
def test_no_stage_keeps_more_than_it_may_and_the_plan_runs(
    pipeline: tuple[PassTimes, int], data: st.DataObject
) -> None:
    times, num_micro_batches = pipeline
    num_stages = len(times.forward_s)
    most = data.draw(st.lists(st.integers(1, 12), min_size=num_stages, max_size=num_stages))
    schedule = plan(times, num_micro_batches, most_in_flight=most).schedule
    simulate(schedule, times)  # no circle
    assert all(kept <= allowed for kept, allowed in zip(schedule.peak_in_flight(), most, strict=True))


@given(pipeline=pipelines(), num_delegates=st.integers(1, 4), copy_s=st.floats(0, 3))
def test_a_plan_runs_over_every_transport_and_over_none_faster_than_promised(
    pipeline: tuple[PassTimes, int], num_delegates: int, copy_s: float
) -> None:
    planned = plan(*pipeline)
    carried = delegated(num_delegates, copy_s=copy_s)
    for way in (BLOCKING, BLOCKING_IN_TURN, Transport(shares_link=True), carried):
        assert simulate(planned.schedule, pipeline[0], way).makespan_s >= planned.makespan_s * (1 - 1e-9)


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


def test_zero_bubble_schedules_want_whole_rounds_of_micro_batches_and_keep_them() -> None:
    assert zb_interleaved(4, 3, 12).peak_in_flight() == (12, 12, 12, 12)  # p v stages' passes
    with pytest.raises(InvalidInput, match="multiple of the number of pipeline ranks, 4; nearest legal value: 8"):
        zb_interleaved(4, 2, 10)
    with pytest.raises(InvalidInput, match="must be at least the number of stages, 8; nearest legal value: 8"):
        dualpipev(4, 7)


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 8), (4, 8), (6, 20)])
def test_dualpipev_keeps_one_pass_more_than_there_are_stages(p: int, m: int) -> None:
    assert dualpipev(p, m).peak_in_flight() == (2 * p + 1,) * p  # PP + 1, README of deepseek-ai/DualPipe


def test_dualpipev_runs_in_the_order_of_pytorch_and_defers_weight_gradients_at_its_ends_alone() -> None:
    # as torch.distributed.pipelining 2.13's ScheduleDualPipeV orders the first of 2 ranks with 4 micro-batches
    order = "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"
    assert str(dualpipev(2, 4)).splitlines()[0] == order
    kinds = [action.kind for action in dualpipev(4, 16).ranks[0]]
    assert kinds.count(Kind.WEIGHT) == kinds.count(Kind.INPUT) < kinds.count(Kind.BACKWARD)


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


# ---------------------------------------------------------------- simulate
SIMULATE_RANKS = st.integers(2, 6)


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


@given(
    p=SIMULATE_RANKS,
    m=st.integers(1, 12),
    passes=st.tuples(PASS, PASS, PASS),
    c=st.integers(0, 40),
    blocks=st.booleans(),
)
def test_no_transport_is_faster_than_sends_beside_compute(
    p: int, m: int, passes: tuple[int, int, int], c: int, *, blocks: bool
) -> None:
    times = PassTimes.equal(p, *map(float, passes), send_s=float(c))
    least_s = simulate(zb_h1(p, m), times).makespan_s
    ways = (Transport(blocks=blocks), Transport(blocks=blocks, shares_link=True), delegated(2), delegated(m))
    took_s = [simulate(zb_h1(p, m), times, way).makespan_s for way in ways]
    assert min(took_s) >= least_s
    assert took_s[-1] == least_s


@given(p=SIMULATE_RANKS, m=st.integers(1, 12), passes=st.tuples(PASS, PASS, PASS))
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
    with pytest.raises(InvalidInput, match="one entry for each of the"):
        simulate(gpipe(2, 2), PassTimes.equal(3, 1.0, 1.0, 1.0))


def test_ranks_that_wait_in_a_circle_are_named() -> None:
    circle = Schedule.parse("0F1 0F0 0B0 0B1\n1F0 1B0 1F1 1B1")
    swapped = Schedule.parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    assert makespan(circle, 1.0, 1.0, 1.0) > 0
    with pytest.raises(InvalidInput, match="waits for another action that waits for it"):
        makespan(swapped, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"input_s": (1.0,)}, "2 values, because there are 2 stages"),
        ({"send_s": ()}, "1 values"),
        ({"send_s": (-1.0,)}, "negative"),
    ],
)
def test_pass_times_fit_together(changes: dict[str, tuple[float, ...]], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        replace(PassTimes.equal(2, 1.0, 1.0, 1.0), **changes)


@given(p=SIMULATE_RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS)
def test_gpipe_and_1f1b_idle_for_one_micro_batch_through_all_other_ranks(
    p: int, m: int, f: int, i: int, w: int
) -> None:
    # arXiv 2104.04473, section 2.2
    assert makespan(gpipe(p, m), f, i, w) == (m + p - 1) * (f + i + w)
    assert makespan(one_f_one_b(p, m), f, i, w) == (m + p - 1) * (f + i + w)


@given(p=SIMULATE_RANKS, v=st.integers(2, 4), rounds=st.integers(1, 4), f=PASS, i=PASS, w=PASS)
def test_interleaved_1f1b_idles_for_one_stage_of_each_other_rank(
    p: int, v: int, rounds: int, f: int, i: int, w: int
) -> None:
    # arXiv 2104.04473, section 2.3; f, i and w are those of one of v stages
    assert makespan(interleaved_1f1b(p, v, rounds * p), f, i, w) == (rounds * p * v + p - 1) * (f + i + w)


@given(p=SIMULATE_RANKS, more=st.integers(0, 20), f=PASS, i=PASS, w=PASS)
def test_zb_h1_defers_weight_gradients_into_the_bubble(p: int, more: int, f: int, i: int, w: int) -> None:
    # F + I - W is arXiv 2401.10241, table 1; with W > F or W > I the chain of I or of F alone is longer
    m = p + more
    assert makespan(zb_h1(p, m), f, i, w) == m * (f + i + w) + (p - 1) * max(f + i - w, f, i)


@given(p=SIMULATE_RANKS, more=st.integers(0, 20), f=PASS, i=PASS, w=PASS)
def test_zb_h2_leaves_only_the_ranks_starting_one_after_another(p: int, more: int, f: int, i: int, w: int) -> None:
    # the paper counts each rank from its own start: F + I - 2 W, 0 for equal passes
    m = 2 * p - 1 + more
    assert makespan(zb_h2(p, m), f, i, w) == m * (f + i + w) + (p - 1) * max(f, f + i - 2 * w, i - f)


@given(p=SIMULATE_RANKS, more=st.integers(0, 20), f=PASS, slower=st.integers(0, 10), faster=st.integers(0, 10))
def test_a_v_idles_for_half_the_chain_of_input_gradients(p: int, more: int, f: int, slower: int, faster: int) -> None:
    # F <= I and W <= I, as of transformer layers; the times are those of one of the two stages of a rank
    m, i = 2 * p - 1 + more, f + slower
    w = max(1, i - faster)
    assert makespan(zbv(p, m), f, i, w) == 2 * m * (f + i + w) + (p - 1) * max(i, 2 * (i - w))


@given(p=SIMULATE_RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS, c=PASS)
def test_1f1b_has_no_slack_for_sends(p: int, m: int, f: int, i: int, w: int, c: int) -> None:
    waits = 2 * (p - 1) + 2 * (m - 1 - -(-(m - 1) // p))  # of every p micro-batches after the first, p - 1 wait
    assert makespan(one_f_one_b(p, m), f, i, w, c) == (m + p - 1) * (f + i + w) + waits * c


@given(p=SIMULATE_RANKS, m=st.integers(1, 24), f=PASS, i=PASS, w=PASS, c=PASS)
def test_gpipe_pays_sends_only_to_fill_and_to_drain(p: int, m: int, f: int, i: int, w: int, c: int) -> None:
    assert makespan(gpipe(p, m), f, i, w, c) == (m + p - 1) * (f + i + w) + 2 * (p - 1) * c
