"""Schedules and the event simulator against the figures of the papers they come from."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import ceil

import numpy as np
import pytest

from autotuner.schedules.planner import absorbed_delay_s, adaptive, plan, warm_up
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import BESIDE_COMPUTE, BLOCKING, PassTimes, Transport, simulate
from autotuner.schedules.standard_schedules import interleaved_1f1b, one_f_one_b, zb_h1, zb_h2
from tests.published.tables import rows


# ------------------------------------------------------------ arXiv 2504.19232, times in ms: exact, sums of integers
def equal(stages: int, pass_ms: float = 10.0) -> PassTimes:
    return PassTimes.equal(stages, pass_ms, pass_ms, pass_ms)


def delayed(times: PassTimes, link: int, delay: float) -> PassTimes:
    return replace(times, send_s=(*times.send_s[:link], delay, *times.send_s[link + 1 :]))


def fixed(times: PassTimes, num_micro_batches: int) -> Schedule:
    """Planned as if no link were slow."""
    healthy = replace(times, send_s=(0.0,) * len(times.send_s))
    return adaptive(healthy, num_micro_batches, warm_up(healthy))


def replanned(times: PassTimes, num_micro_batches: int) -> Schedule:
    return adaptive(times, num_micro_batches, warm_up(times))


def makespan(schedule: Schedule, times: PassTimes, transport: Transport = BESIDE_COMPUTE) -> float:
    return simulate(schedule, times, transport).makespan_s


def with_slack(slack: int, times: PassTimes, num_micro_batches: int) -> Schedule:
    """Two stages, the first ``slack`` forwards ahead of the second, in the order that keeps this slack throughout."""
    hidden = absorbed_delay_s(slack, times.forward_s[0], times.input_s[0])
    return adaptive(delayed(times, 0, hidden), num_micro_batches, (1 + slack, 1))


def test_figure_4_a_healthy_pipeline_of_4_by_12_takes_390() -> None:
    timeline = simulate(fixed(equal(4), 12), equal(4))
    assert warm_up(equal(4)) == (7, 5, 3, 1)
    assert timeline.makespan_s == 390.0
    assert timeline.busy_s == (360.0,) * 4  # idle 7.69 % of 390


@pytest.mark.parametrize(("delay", "same_order", "adapted", "first"), [(10.0, 400, 400, 8), (20.0, 440, 410, 9)])
def test_figure_5_a_new_plan_hides_a_slow_first_link(delay: float, same_order: int, adapted: int, first: int) -> None:
    times = delayed(equal(4), 0, delay)
    assert warm_up(times) == (first, 5, 3, 1)
    assert (makespan(fixed(times, 12), times), makespan(replanned(times, 12), times)) == (same_order, adapted)


@pytest.mark.parametrize(
    ("slack", "added"),
    [
        (2, (50, 210, 610, 850)),
        (3, (12, 20, 340, 532)),
        (4, (12, 20, 150, 294)),
        (5, (12, 20, 40, 160)),
        (6, (12, 20, 40, 70)),
    ],
)
def test_figure_8_every_forward_of_slack_hides_a_forward_of_delay(slack: int, added: tuple[int, ...]) -> None:
    schedule = with_slack(slack, equal(2), 30)
    assert makespan(schedule, equal(2)) == 910
    assert tuple(makespan(schedule, delayed(equal(2), 0, c)) - 910 for c in (12.0, 20.0, 40.0, 52.0)) == added


@pytest.mark.parametrize(
    ("delay", "same_order", "adapted"), [(0.0, 930, 930), (12.0, 980, 942), (30.0, 1340, 960), (51.0, 1760, 981)]
)
def test_a_slow_last_link_of_4_by_30(delay: float, same_order: int, adapted: int) -> None:
    times = delayed(equal(4), 2, delay)
    assert (makespan(fixed(times, 30), times), makespan(replanned(times, 30), times)) == (same_order, adapted)


def test_a_delay_beyond_the_slack_is_paid_twice_per_round_of_warm_up() -> None:
    # D(c) = c + (2 ceil(N / x) - 1) max(0, c - c_max), for two stages, equal passes and at least two rounds
    source = random.Random(0)
    for _ in range(300):
        slack, delay = source.randint(1, 8), float(source.randint(0, 100))
        num_micro_batches = source.randint(2 * (1 + slack), 60)
        rounds = ceil(num_micro_batches / (1 + slack))
        schedule = with_slack(slack, equal(2), num_micro_batches)
        added = makespan(schedule, delayed(equal(2), 0, delay)) - makespan(schedule, equal(2))
        assert added == delay + (2 * rounds - 1) * max(0.0, delay - 10.0 * (slack - 1))


@pytest.mark.parametrize("slack", [2, 3, 5])
@pytest.mark.parametrize("passes", [(10.0, 10.0), (10.0, 15.0), (10.0, 20.0), (15.0, 10.0), (20.0, 10.0)])
def test_a_delay_up_to_c_max_costs_only_itself(passes: tuple[float, float], slack: int) -> None:
    times = PassTimes.equal(2, *passes, 10.0)
    schedule = with_slack(slack, times, 40)
    hidden = absorbed_delay_s(slack, *passes)
    healthy = makespan(schedule, times)
    assert makespan(schedule, delayed(times, 0, hidden)) == healthy + hidden
    assert makespan(schedule, delayed(times, 0, hidden + 1)) > healthy + hidden + 1


@pytest.mark.parametrize(
    ("delay", "delegated", "adapted", "blocking"), [(30.0, 880, 810, 1170), (60.0, 1120, 840, 1560)]
)
def test_delays_are_worse_where_sends_block_and_mild_where_the_plan_knows_them(
    delay: float, delegated: int, adapted: int, blocking: int
) -> None:
    # 4 stages of 20 ms passes, 12 micro-batches, link 2-3; healthy 780, and 900 under 1F1B
    times = delayed(equal(4, 20.0), 2, delay)
    assert makespan(fixed(times, 12), times) == delegated
    assert makespan(replanned(times, 12), times) == adapted
    assert makespan(fixed(times, 12), times, BLOCKING) == blocking
    assert makespan(one_f_one_b(4, 12), times) == 900 + 12 * delay


SIZES = ((3, 6), (4, 12), (6, 18), (8, 32))
"""Stages and micro-batches of the published comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase:
    """A pipeline to plan; times in ms."""

    num_stages: int
    num_micro_batches: int
    base: int
    """The mean pass is drawn from ``base`` to twice that."""
    times: PassTimes


def published_cases() -> Iterator[PlanCase]:
    """The authors' 100 cases, from the seed and the distributions of their test."""
    uniform, normal = random.Random(2025), np.random.RandomState(2025)
    for (stages, micro_batches), base, _ in product(SIZES, range(10, 31, 5), range(5)):
        delay = uniform.random() * 20
        means = normal.randint(base, 2 * base, 3)
        forward, input_, weight = (tuple((mean + normal.normal(0, 2, stages)).tolist()) for mean in means)
        times = PassTimes(forward_s=forward, input_s=input_, weight_s=weight, send_s=(delay,) * (stages - 1))
        yield PlanCase(num_stages=stages, num_micro_batches=micro_batches, base=base, times=times)


def slow_link_cases(num_cases: int, seed: int = 0) -> Iterator[PlanCase]:
    """Equal stages of a transformer, one to three links slow by half a forward to six."""
    source = random.Random(seed)
    for index in range(num_cases):
        stages, micro_batches = SIZES[index % len(SIZES)]
        forward = source.uniform(5, 30)
        input_, weight = forward * source.uniform(0.8, 1.6), forward * source.uniform(0.5, 1.1)
        slow = source.sample(range(stages - 1), source.randint(1, min(3, stages - 1)))
        send = tuple(forward * source.uniform(0.5, 6) if link in slow else 0.0 for link in range(stages - 1))
        times = PassTimes(
            forward_s=(forward,) * stages, input_s=(input_,) * stages, weight_s=(weight,) * stages, send_s=send
        )
        yield PlanCase(num_stages=stages, num_micro_batches=micro_batches, base=int(forward), times=times)


def lower_bound_s(times: PassTimes, num_micro_batches: int) -> float:
    """Seconds that no order of the passes can beat, however much memory there is.

    The longest of four chains through any stage: its first forward arrives, then all of its passes; or all of its
    forwards and input gradients, after which the last gradient travels back and its weight gradient follows somewhere
    on the way; or the first micro-batch goes to the last stage and back, then all of its input gradients, and on as
    before; or all of its forwards, the last of which goes to the last stage and back to the first.
    """
    forward, input_, weight, send = times.forward_s, times.input_s, times.weight_s, times.send_s
    num_stages, m = len(forward), num_micro_batches
    chains = [0.0]
    for i in range(num_stages):
        head = sum(forward[:i]) + sum(send[:i])
        tail = max(sum(input_[j:i]) + sum(send[j:i]) + weight[j] for j in range(i + 1))
        there = sum(forward[i + 1 :]) + sum(send[i:])
        back = sum(input_[i + 1 :]) + sum(send[i:])
        chains += [
            head + m * (forward[i] + input_[i] + weight[i]),
            head + m * (forward[i] + input_[i]) + tail,
            head + forward[i] + there + back + m * input_[i] + tail,
            head + m * forward[i] + there + back + input_[i] + tail,
        ]
    return max(chains)


# ------------------------------------------------------------ the same paper, plans against an integer program
def test_plans_are_within_a_percent_of_the_integer_program() -> None:
    gaps = []
    for row, case in zip(rows("pipemorph_ilp_gap"), published_cases(), strict=True):
        printed = tuple(int(row[name]) for name in ("num_stages", "num_micro_batches", "base"))
        assert printed == (case.num_stages, case.num_micro_batches, case.base)
        if case.base == 10 and case.num_stages >= 6:
            continue  # ten printed results belong to other cases: one of them is shorter than any schedule can be
        gaps.append(plan(case.times, case.num_micro_batches).makespan_s / float(row["ilp"]) - 1)
    equal_to_the_optimum = [gap for gap in gaps if abs(gap) < 1e-6]  # results are printed to 1e-5 ms of 200 and more
    assert len(gaps) == 90
    assert len(equal_to_the_optimum) >= 70
    # the authors' own, planned on times rounded up, are 1.95 % and 5.47 % of these; their program has 30 s for each
    assert np.mean(gaps) < 0.001
    assert max(gaps) < 0.02


@pytest.mark.parametrize("cases", [published_cases, partial(slow_link_cases, 40)], ids=["published", "slow links"])
def test_no_schedule_could_be_shorter_by_more_than_a_few_percent(cases: Callable[[], Iterator[PlanCase]]) -> None:
    gaps = [
        plan(one.times, one.num_micro_batches).makespan_s / lower_bound_s(one.times, one.num_micro_batches) - 1
        for one in cases()
    ]
    assert min(gaps) > -1e-9
    assert np.mean(gaps) < 0.005  # required of the gap to the optimum: mean 2.5 %, largest 6 %
    assert max(gaps) < 0.03


# ------------------------------------------------------------ arXiv 2401.10241
@pytest.mark.parametrize(
    "row", rows("zero_bubble_profiled_pass_times"), ids=lambda r: f"{r['model']}-{r['num_microbatches']}"
)
def test_bubble_rates_follow_from_the_profiled_pass_times(row: dict[str, str]) -> None:
    p, m, stages_per_rank = int(row["pp"]), int(row["num_microbatches"]), (int(row["layers"]) + 2) // int(row["pp"])
    schedules = {
        "bubble_1f1b": one_f_one_b(p, m),
        "bubble_zb_h1": zb_h1(p, m),
        "bubble_zb_h2": zb_h2(p, m),
        "bubble_1f1b_i": interleaved_1f1b(p, stages_per_rank, m),
    }
    for name, schedule in schedules.items():
        timeline = simulate(schedule, profiled(row, schedule))
        # a rank goes on to its next step without waiting for the others, as arXiv 2401.10241, section 4, counts
        longest_s = max(ends[-1] - starts[0] for starts, ends in zip(timeline.start_s, timeline.end_s, strict=True))
        rate = 1 - max(timeline.busy_s) / longest_s
        # printed to 4 decimals; interleaving costs us p sends more than the paper counts, up to 0.36 % of a step
        assert rate == pytest.approx(float(row[name]), abs=0.004 if name == "bubble_1f1b_i" else 0.00006)


def profiled(row: Mapping[str, str], schedule: Schedule) -> PassTimes:
    """Pass times of a rank, split evenly over its stages, in seconds."""
    names = ("t_forward_ms", "t_backward_input_ms", "t_backward_weight_ms")
    forward, input_, weight = (float(row[name]) / 1e3 * len(schedule.ranks) / schedule.num_stages for name in names)
    return PassTimes.equal(schedule.num_stages, forward, input_, weight, send_s=float(row["t_comm_ms"]) / 1e3)


@pytest.mark.parametrize("num_micro_batches", [24, 32, 64])
def test_measured_step_times_are_those_of_schedules_whose_sends_block(num_micro_batches: int) -> None:
    # Megatron-LM puts sends into the compute stream; 1.5B on 8 A100, micro-batch 6; what is missing from the simulated
    # step (optimizer, norm of the gradients) is 3 to 6.5 % of the measured one, and much the same under all schedules
    profile = {int(row["num_microbatches"]): row for row in rows("zero_bubble_profiled_pass_times")[:3]}
    measured_s = {
        row["schedule"]: float(row["step_time_s"])
        for row in rows("zero_bubble_pp_a100")
        if row["micro_batch"] == "6" and int(row["global_batch"]) == 6 * num_micro_batches
    }
    shares = {}
    for name, schedule in {
        "1F1B": one_f_one_b(8, num_micro_batches),
        "1F1B-I": interleaved_1f1b(8, 3, num_micro_batches),
        "ZB-1p": zb_h1(8, num_micro_batches),
    }.items():
        times = profiled(profile[num_micro_batches], schedule)
        shares[name] = makespan(schedule, times, BLOCKING) / measured_s[name]
        assert 0.93 < shares[name] < 0.97
    # the ratio to 1F1B at the same m: ZB-1p to 0.5 %, interleaved to 2 %
    assert shares["ZB-1p"] == pytest.approx(shares["1F1B"], rel=0.006)
    assert shares["1F1B-I"] == pytest.approx(shares["1F1B"], rel=0.02)
