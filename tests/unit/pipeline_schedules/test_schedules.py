from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import PipelineSchedule
from autotuner.core.errors import InvalidInput
from autotuner.schedules.named import gpipe, interleaved_1f1b, one_f_one_b, zb_h1, zb_h2, zbv
from autotuner.schedules.planner import adaptive, named_schedule, plan, warm_up
from autotuner.schedules.schedule import Action, Kind, Schedule
from autotuner.schedules.simulate import PassTimes, simulate


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


def test_an_action_prints_as_stage_kind_and_micro_batch() -> None:
    assert str(Action(2, Kind.INPUT, 11)) == "2I11"
    assert Action.parse("2I11") == Action(2, Kind.INPUT, 11)


@pytest.mark.parametrize("text", ["F0", "0X0", "0F", "0F0 ", "-1F0"])
def test_other_words_are_no_actions(text: str) -> None:
    with pytest.raises(InvalidInput, match="such as 0F0"):
        Action.parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0 0F0 0B0", "runs once"),
        ("0F0 0F1 0B0", "must run F, then B"),
        ("0B0 0F0", "must run F, then B"),
        ("0F0 0W0 0I0", "must run F, then B"),
        ("0F0 0I0", "must run F, then B"),
        ("0F0 0B0 0W0", "must run F, then B"),
        ("0F0 0B0\n2F0 2B0", "without a gap"),
        ("0F0 0B0\n0F1 0B1", "each stage one rank"),
        ("0F0 0B0\n\n1F0 1B0", "each rank must hold stages"),
        ("", "without a gap"),
    ],
)
def test_what_is_missing_doubled_or_out_of_order_is_no_schedule(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        Schedule.parse(text)


def test_1f1b_warms_up_and_then_alternates() -> None:
    # arXiv 2104.04473, figure 4, for two ranks
    assert str(one_f_one_b(2, 3)) == "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2"


def test_interleaved_1f1b_sends_rounds_of_micro_batches_through_one_stage_after_the_other() -> None:
    first, last = str(interleaved_1f1b(2, 2, 2)).splitlines()
    assert first == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"
    assert last == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"


def test_a_v_turns_round_on_the_last_rank() -> None:
    # as torch.distributed.pipelining 2.13's ScheduleZBVZeroBubble orders 2 ranks and 3 micro-batches
    last = "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"
    assert str(zbv(2, 3)).splitlines()[1] == last
    assert zbv(3, 9).rank_of == {0: 0, 1: 1, 2: 2, 3: 2, 4: 1, 5: 0}


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


def test_deferred_weight_gradients_do_not_lengthen_the_wait_for_the_first_backward() -> None:
    assert zb_h1(4, 12).peak_in_flight(Kind.INPUT) == one_f_one_b(4, 12).peak_in_flight()
    assert zb_h2(4, 12).peak_in_flight(Kind.INPUT) == (7, 5, 3, 1)


def test_interleaving_wants_whole_rounds_of_micro_batches() -> None:
    with pytest.raises(InvalidInput, match="multiple of the 4 pipeline ranks; nearest legal value: 8"):
        interleaved_1f1b(4, 2, 10)


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_a_schedule_has_at_least_one_rank_and_one_micro_batch(sizes: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="must be 1 or more"):
        zb_h1(*sizes)


# ---------------------------------------------------------------- adaptive
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


# ---------------------------------------------------------------- Schedules by the names that layouts give them
def test_a_plain_schedule_follows_from_its_sizes() -> None:
    assert named_schedule(PipelineSchedule.ONE_F_ONE_B, 4, 1, 8) == one_f_one_b(4, 8)


def test_the_adaptive_schedule_is_planned_from_times_where_they_are_known() -> None:
    slow, most = PassTimes.equal(4, 10.0, 10.0, 10.0, send_s=20.0), (6, 6, 6, 6)
    name = PipelineSchedule.ADAPTIVE
    assert named_schedule(name, 4, 1, 12) == plan(PassTimes.equal(4, 1.0, 1.0, 1.0), 12).schedule
    assert named_schedule(name, 4, 1, 12, times=slow, extra_slack=1) == plan(slow, 12, extra_slack=1).schedule
    limited = named_schedule(name, 4, 1, 12, times=slow, most_in_flight=most)
    assert max(limited.peak_in_flight()) == 6
