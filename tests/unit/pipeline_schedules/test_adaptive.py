"""The adaptive planner: how far stages run ahead, and what they take first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.pipeline_schedules.actions import Action, Kind
from autotuner.pipeline_schedules.adaptive import adaptive, warm_up
from autotuner.pipeline_schedules.simulate import PassTimes, simulate

EQUAL = PassTimes.equal(4, 10.0, 10.0, 10.0)


def test_without_delays_every_stage_runs_two_forwards_further_ahead_than_the_next() -> None:
    assert warm_up(EQUAL) == (7, 5, 3, 1)


def test_a_slow_link_sets_all_stages_before_it_further_ahead() -> None:
    assert warm_up(replace(EQUAL, send_s=(0.0, 11.0, 0.0))) == (9, 7, 3, 1)


@pytest.mark.parametrize(
    ("num_micro_batches", "counts", "complaint"),
    [
        (12, (3, 1), "4 values"),
        (12, (1, 2, 1, 1), "not grow"),
        (12, (1, 1, 1, 0), "below 1"),
        (0, (4, 3, 2, 1), "1 or more"),
    ],
)
def test_plans_that_could_not_run_are_refused(num_micro_batches: int, counts: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        adaptive(EQUAL, num_micro_batches, counts)


def test_stages_that_take_no_time_cannot_be_planned_for() -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        warm_up(PassTimes.equal(2, 0.0, 1.0, 1.0))


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


def test_what_is_ready_runs_in_the_order_input_gradient_forward_weight_gradient() -> None:
    # the last of two stages: everything arrives at once, so forwards hold weight gradients back
    last = adaptive(PassTimes.equal(2, 10.0, 10.0, 10.0), 3, (3, 1)).ranks[1]
    assert " ".join(map(str, last)) == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"


def test_a_stage_waits_for_its_first_backward_instead_of_running_further_ahead() -> None:
    first = adaptive(PassTimes.equal(2, 1.0, 10.0, 1.0), 5, (2, 1)).ranks[0]
    assert first[2] == Action(0, Kind.INPUT, 0)
