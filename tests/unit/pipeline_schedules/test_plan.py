"""Plans: what they promise of a schedule, with and without a limit on what stages keep."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.schedules.named import zb_h1, zb_h2
from autotuner.schedules.planner import even_warm_up, plan, within
from autotuner.schedules.simulate import BLOCKING, BLOCKING_IN_TURN, PassTimes, Transport, delegated, simulate

EQUAL = PassTimes.equal(4, 10.0, 10.0, 10.0)
SLOW = replace(EQUAL, send_s=(20.0, 0.0, 0.0))


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[PassTimes, int]:
    passes = draw(st.lists(st.tuples(*[st.floats(1, 30)] * 3), min_size=1, max_size=5))
    delays = draw(st.lists(st.floats(0, 60), min_size=len(passes) - 1, max_size=len(passes) - 1))
    forward, input_, weight = zip(*passes, strict=True)
    times = PassTimes(forward_s=forward, input_s=input_, weight_s=weight, send_s=tuple(delays))
    return times, draw(st.integers(1, 16))


def test_a_plan_hides_a_slow_link_behind_more_forwards() -> None:
    planned = plan(SLOW, 12)
    assert (planned.warm_up, planned.makespan_s) == ((9, 5, 3, 1), 410)
    assert planned.planned_send_s == SLOW.send_s


def test_without_slow_links_it_idles_only_while_ranks_start_one_after_another() -> None:
    planned = plan(EQUAL, 12)
    assert (planned.warm_up, planned.makespan_s) == ((7, 5, 3, 1), 390)
    assert planned.makespan_s == simulate(zb_h2(4, 12), EQUAL).makespan_s


def test_no_stage_keeps_more_than_the_first_needs_to_run_ahead() -> None:
    assert plan(SLOW, 40).schedule.peak_in_flight() == (9, 9, 9, 9)


def test_extra_slack_sets_each_stage_further_ahead_of_the_next() -> None:
    assert plan(EQUAL, 12, extra_slack=1).warm_up == (10, 7, 4, 1)
    with pytest.raises(InvalidInput, match="extra_slack"):
        plan(EQUAL, 12, extra_slack=-1)


def test_slack_that_memory_limits_is_spread_over_the_links_the_first_first() -> None:
    assert even_warm_up(4, 7) == (7, 5, 3, 1)
    assert even_warm_up(4, 6) == (6, 4, 2, 1)
    assert even_warm_up(4, 2) == (2, 1, 1, 1)
    assert even_warm_up(1, 3) == (3,)


def test_a_stage_runs_no_further_ahead_than_it_or_any_before_it_may() -> None:
    assert within((9, 7, 5, 1), (12, 4, 6, 6)) == (9, 4, 4, 1)


@pytest.mark.parametrize(
    ("most", "nearest"), [((4, 0, 4, 4), "nearest legal value: (4, 1, 4, 4)"), ((4, 4), "4 values")]
)
def test_a_stage_that_can_keep_nothing_is_refused_with_the_nearest_limit(most: tuple[int, ...], nearest: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan(EQUAL, 12, most_in_flight=most)
    assert nearest in str(refused.value)


def test_a_step_has_micro_batches() -> None:
    with pytest.raises(InvalidInput, match="num_micro_batches"):
        plan(EQUAL, 0)


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
