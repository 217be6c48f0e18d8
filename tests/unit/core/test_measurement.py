"""Measurements, and what a sweep maximises of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import chain, cycle, repeat

import pytest

from autotuner.core import codec
from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, RobustMeasurement
from autotuner.core.measuring import (
    Pace,
    averages_in,
    half_interval_s,
    is_stationary,
    levelled,
    mean_over_period,
    shows_average,
)
from autotuner.core.objective import (
    Metric,
    Objective,
    Weight,
    known_metrics,
    metrics_text,
    profile_text,
    read_metrics,
    read_profile,
    require_known,
)
from autotuner.core.sweep import SweepRequest
from autotuner.core.timeline import Block, BlockKind, StepTimeline, found_folds, outside
from autotuner.core.trial import Trial, TrialState
from autotuner.core.trial_spec import TrialSettings
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, cpu_layout, h100_cluster, measurement, prediction, step_timeline


# ---------------------------------------------------------------- measurement
def test_the_parts_of_a_breakdown_sum_to_its_step() -> None:
    parts = [field.name for field in fields(Breakdown) if field.name != "rank"]
    powers = {name: 2.0**exponent for exponent, name in enumerate(parts)}  # no two subsets have the same sum
    assert Breakdown(rank=7, **powers).step_s == 2.0 ** len(parts) - 1


def test_how_well_a_step_time_is_known_is_described_by_its_interval_or_else_by_its_quartiles() -> None:
    assert measurement(step_time_interval_s=0.02).step_time_error_s == 0.02
    few = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=4)
    many = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=16)
    assert few.step_time_error_s == 2 * many.step_time_error_s
    assert 0.08 < few.step_time_error_s < 0.1  # 1.96 x 1.253 / 1.349 of half the distance of the quartiles


TRACE = FaultTrace.parse("2;0_1;0.06\n4;0_1;0", num_steps=6)


def reached(*times_s: float) -> RobustMeasurement:
    return RobustMeasurement.of(TRACE, times_s, model_flop=30.0, peak_flop_per_s=100.0, tokens=60)


def test_the_robust_step_time_is_the_mean_of_all_steps_of_a_trace_that_ran_to_its_end() -> None:
    found = reached(1.0, 1.0, 4.0, 4.0, 1.0, 1.0)
    assert (found.step_time_s, found.mfu, found.tokens_per_s, found.num_steps) == (2.0, 0.15, 30.0, 6)
    with pytest.raises(InvalidInput, match="one step time for each step of the trace"):
        reached(1.0, 1.0)
    assert reached(1.0, 1.0, 4.0, 4.0, 1.0, 1.0).step_time_error_s == 0.0
    assert reached(1.0, 1.2, 4.0, 4.2, 1.0, 1.2).relative_error > 0.0


def test_each_stretch_keeps_its_links_and_its_own_steps() -> None:
    healthy, slow, healed = reached(1.0, 2.0, 3.0, 4.0, 5.0, 6.0).stretches
    assert (healthy.links, healthy.step_times_s) == ((), (1.0, 2.0))
    assert ([str(link) for link in slow.links], slow.step_times_s) == (["0_1"], (3.0, 4.0))
    assert (healed.first_step, healed.links, healed.step_times_s) == (4, (), (5.0, 6.0))


def test_each_step_bears_its_part_of_an_average_in_the_last_step_of_a_period() -> None:
    assert [step for step in range(9) if averages_in(step, 4)] == [3, 7]
    assert not shows_average([4, 5, 6], 4)
    assert shows_average([4, 5, 6, 7], 4)
    found = levelled([2, 3, 4], [1.0, 5.0, 1.0], 4)
    assert found == [2.0, 2.0]
    assert statistics.median(found) == mean_over_period([2, 3, 4], [1.0, 5.0, 1.0], 4)


@pytest.mark.parametrize("period", [1, 8])
def test_steps_that_are_alike_or_without_an_average_stay_as_they_are(period: int) -> None:
    assert levelled([0, 1, 2], [1.0, 2.0, 3.0], period) == [1.0, 2.0, 3.0]
    assert mean_over_period([0, 1, 2], [1.0, 2.0, 3.0], period) == 2.0


FIRST_S = 9.0
NOISE_S = (1.0, 1.3, 0.8, 1.1, 0.9, 1.2)
"""Twenty per cent of scatter: no median of it is known to 1 % after forty steps."""


def run(settings: TrialSettings, later_s: Iterator[float], *, period: int = 1) -> tuple[int, int]:
    """Steps of the warm-up and of the measurement."""
    pace, num_steps = Pace(settings, period=period), 0
    for step_time_s in chain([FIRST_S], later_s):
        if pace.is_done:
            break
        pace.add(step_time_s)
        num_steps += 1
    return pace.num_warmup_steps, num_steps - pace.num_warmup_steps


def test_warm_up_lasts_until_steps_stay_and_equal_steps_are_known_after_six_more() -> None:
    assert run(TrialSettings(), repeat(0.1)) == (3, 6)
    settings = TrialSettings(measured_steps=1, max_measured_steps=2)
    assert run(settings, repeat(0.1), period=16) == (3, 13)
    averaging = (0.5 if step % 4 == 3 else 0.1 for step in range(1, 400))
    six_plain_ones = (4, 7)
    assert run(TrialSettings(warmup_steps=4, max_warmup_steps=4), averaging, period=4) == six_plain_ones
    num_warmup, _ = run(TrialSettings(), chain([0.4, 0.2, 0.15, 0.125], repeat(0.1)))
    assert num_warmup > 5
    falling = (100.0 - step for step in range(60))
    settings = TrialSettings(max_warmup_steps=20, max_measured_steps=40, measuring_budget_s=1e6, target_interval=0.0)
    assert run(settings, falling) == (20, 40)
    settings = TrialSettings(warmup_steps=0, max_warmup_steps=0, measured_steps=2, max_measured_steps=2)
    assert run(settings, repeat(1.0)) == (0, 2)


def test_noise_is_measured_until_a_target_a_budget_or_the_fewest_or_most_steps() -> None:
    _, num_measured = run(TrialSettings(max_measured_steps=40, measuring_budget_s=1e6), cycle(NOISE_S))
    assert num_measured == 40
    _, strict = run(TrialSettings(target_interval=0.05, max_measured_steps=500, measuring_budget_s=1e6), cycle(NOISE_S))
    _, lenient = run(TrialSettings(target_interval=0.2, max_measured_steps=500, measuring_budget_s=1e6), cycle(NOISE_S))
    assert lenient < strict
    settings = TrialSettings(warmup_steps=4, measured_steps=7, measuring_budget_s=0.001)
    assert run(settings, cycle(NOISE_S)) == (4, 7)
    settings = TrialSettings(warmup_steps=4, max_warmup_steps=1, measured_steps=50, max_measured_steps=40)
    assert run(settings, repeat(1.0)) == (4, 50)
    _, num_measured = run(TrialSettings(measuring_budget_s=10.0, max_warmup_steps=2), cycle(NOISE_S))
    assert num_measured == 10  # seconds, at a second each


STEPS = {
    "nothing but the first step": ([9.0], False),
    "one step after the first": ([9.0, 1.0], False),
    "two equal steps of a quiet device": ([9.0, 1.0, 1.005], True),
    "two steps that differ": ([9.0, 1.2, 1.0], False),
    "a fall that goes on": ([9.0, 3.0, 2.0, 1.5, 1.25, 1.125, 1.06], False),
    "a fall that has ended": ([9.0, 3.0, 2.0, 1.0, 1.1, 0.98, 1.05, 1.02, 1.1], True),
    "a rise, as of a device that heats up": ([9.0, 1.0, 1.01, 1.02, 1.2, 1.22, 1.24], False),
    "noise without a trend": ([9.0, 1.3, 0.9, 1.1, 1.2, 1.0, 1.4], True),
    "noise, and one step that was disturbed": ([9.0, 1.0, 1.05, 1.02, 7.0, 1.01, 1.04], True),
    "a fall hidden by nothing but its own length": ([9.0, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5], False),
}


@pytest.mark.parametrize(("times_s", "settled"), STEPS.values(), ids=STEPS)
def test_steps_are_stationary_when_two_windows_cannot_be_distinguished(times_s: list[float], settled: bool) -> None:
    assert is_stationary(times_s, resolution=0.01) is settled


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_a_geometric_fall_is_a_trend_until_it_is_below_the_resolution(ratio: float) -> None:
    times_s = [9.0] + [1.0 + ratio**step for step in range(40)]
    settled = next(n for n in range(2, 41) if is_stationary(times_s[:n], resolution=0.01))
    assert times_s[settled - 2] - times_s[settled - 1] <= 0.01 * times_s[settled - 2]


@pytest.mark.parametrize("num_steps", range(6))
def test_fewer_than_six_steps_do_not_bound_a_median_with_95_percent(num_steps: int) -> None:
    assert half_interval_s(list(range(num_steps))) is None


@pytest.mark.parametrize(
    ("num_steps", "num_outside"),
    [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (25, 7)],  # Conover (1999), table A3 at p = 0.5
)
def test_the_interval_runs_between_the_order_statistics_of_the_binomial_table(num_steps: int, num_outside: int) -> None:
    times_s = random.Random(0).sample(range(num_steps), num_steps)
    assert half_interval_s(times_s) == (num_steps - 1 - 2 * num_outside) / 2


def test_one_disturbed_step_does_not_widen_the_interval_of_ten() -> None:
    quiet = [1.0 + 0.001 * n for n in range(10)]
    assert half_interval_s([*quiet[:-1], 50.0]) == half_interval_s(quiet)


def test_the_interval_holds_the_median_of_skewed_steps_as_often_as_it_says() -> None:
    draw, true_median, held = random.Random(1), 0.6931471805599453, 0  # ln 2, of the exponential distribution
    for _ in range(2000):
        times_s = [draw.expovariate(1.0) for _ in range(12)]
        half = half_interval_s(times_s)
        assert half is not None
        ordered = sorted(times_s)
        held += ordered[2] <= true_median <= ordered[9]
        assert half == pytest.approx((ordered[9] - ordered[2]) / 2)
    # 12 steps without 2 at each end hold it in 96.1 % of cases; four standard errors of 2,000 draws are 1.7 %
    assert held / 2000 == pytest.approx(0.961, abs=0.017)


@pytest.mark.parametrize(
    "block",
    [
        Block(0.0, 1.0, BlockKind.FORWARD, 0, 3),
        Block(0.5, 1.0, BlockKind.WEIGHT, 12, 345),
        Block(0.5, 0.75, BlockKind.SEND),
        Block(2.0, 3.0, BlockKind.OPTIMIZER),
    ],
)
def test_a_block_reads_the_word_that_it_writes(block: Block) -> None:
    assert Block.parse(block.word, block.start_s, block.end_s) == block


def test_a_pass_is_written_as_torch_writes_it() -> None:
    assert Block(0.0, 1.0, BlockKind.INPUT, 2, 7).word == "2I7"


@pytest.mark.parametrize("word", ["F", "0X1", "F3", "0F", "receive", "", "0F1 "])
def test_a_word_that_is_no_action_is_refused_with_one_that_is(word: str) -> None:
    with pytest.raises(InvalidInput, match="0F3"):
        Block.parse(word, 0.0, 1.0)


def test_a_lane_of_other_words_or_moments_than_actions_is_refused() -> None:
    lane = step_timeline().ranks[0]
    with pytest.raises(InvalidInput, match="one start time for each action"):
        replace(lane, end_s=lane.end_s[1:])
    with pytest.raises(InvalidInput, match="0F3"):
        replace(lane, actions=("?", *lane.actions[1:]))


def test_a_timeline_reads_what_it_writes_and_its_seconds_sum_to_its_step() -> None:
    timeline = step_timeline()
    assert [rank.seconds.total_s for rank in timeline.ranks] == pytest.approx([timeline.step_s] * 2)  # decimal parts
    assert codec.loads(StepTimeline, codec.dumps(timeline)) == timeline
    assert [block.word for block in timeline.ranks[0].blocks] == list(timeline.ranks[0].actions)


F, B = BlockKind.FORWARD, BlockKind.BACKWARD


def accumulated(count: int) -> list[Block]:
    """One rank: a second forward and a second back for each micro-batch."""
    return [Block(2.0 * i + k, 2.0 * i + k + 1, kind, 0, i) for i in range(count) for k, kind in enumerate((F, B))]


def all_forward_first(count: int) -> list[Block]:
    """One rank: all forwards, then all backwards."""
    return [
        Block(k * count + i, k * count + i + 1.0, kind, 0, i) for k, kind in enumerate((F, B)) for i in range(count)
    ]


def test_repeated_micro_batches_of_a_timeline_are_folded_between_its_ends() -> None:
    assert found_folds([accumulated(7)], 7) == ()
    (fold,) = found_folds([accumulated(50)], 50)
    assert (fold.start_s, fold.end_s, fold.num_micro_batches) == (4.0, 96.0, 46)
    shown = outside(accumulated(50), (fold,))
    assert sorted({block.micro_batch for block in shown if block.micro_batch is not None}) == [0, 1, 48, 49]
    (fold,) = found_folds([accumulated(50)], 50)
    across = Block(fold.start_s - 1, fold.start_s + 1, F, 0, 7)
    assert outside([across], (fold,)) == (across,)
    folds = found_folds([all_forward_first(50)], 50)
    assert [(fold.start_s, fold.end_s, fold.num_micro_batches) for fold in folds] == [(2.0, 48.0, 46), (52.0, 98.0, 46)]


# ---------------------------------------------------------------- objective
PRICED = h100_cluster(price_per_accelerator_hour=2.0, tariff=Tariff(co2_kg_per_kwh=0.3))
BARE = h100_cluster()
WITHOUT_POWER = replace(PRICED, accelerator=replace(PRICED.accelerator, power_w=0.0))


def test_a_cluster_with_power_price_and_mix_has_all_metrics_but_robustness() -> None:
    assert set(Metric) - set(known_metrics(PRICED)) == {Metric.ROBUSTNESS}
    assert known_metrics(PRICED, has_trace=True) == tuple(Metric)


@pytest.mark.parametrize(
    ("metric", "cluster", "named", "nearest"),
    [
        (Metric.TOKENS_PER_JOULE, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
        (Metric.TOKENS_PER_DOLLAR, BARE, "price_per_accelerator_hour", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, BARE, "tariff.co2_kg_per_kwh", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
    ],
)
def test_an_underivable_value_is_refused_with_the_settings_that_it_needs(
    metric: Metric, cluster: Cluster, named: str, nearest: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        require_known(Objective(metric=metric), cluster)
    assert (refused.value.field, refused.value.value) == ("objective.metric", metric.value)
    assert refused.value.nearest == nearest


def test_a_metric_that_the_cluster_lacks_is_refused_under_the_profile_or_front_that_uses_it() -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1))
    with pytest.raises(InvalidInput, match=r"objective\.profile = 'tokens_per_dollar'"):
        require_known(Objective(profile=profile), BARE)
    with pytest.raises(InvalidInput, match=r"objective\.front = 'robustness'.*fault_trace.*simplicity"):
        require_known(Objective(front=(Metric.MFU, Metric.ROBUSTNESS)), PRICED)
    metered = replace(BARE, tariff=Tariff(energy_price_per_kwh=0.1))
    require_known(Objective(metric=Metric.TOKENS_PER_DOLLAR), metered)
    with pytest.raises(InvalidInput, match="price_per_accelerator_hour"):
        SweepRequest(job=replace(big_job(), cluster=BARE), objective=Objective(metric=Metric.TOKENS_PER_DOLLAR))


def measured(number: int, mfu: float, layout: Layout | None = None) -> Trial:
    return Trial(
        id=f"sw-{number}",
        sweep_id="sw",
        number=number,
        state=TrialState.COMPLETE,
        layout=layout or cpu_layout(),
        prediction=prediction(),
        measurement=measurement(mfu=mfu, tokens_per_s=1000 * mfu),
    )


def gate(outcome: GateOutcome) -> GateResult:
    return GateResult(outcome=outcome, detail="", reference=cpu_layout(), tolerance=0.02)


@pytest.mark.parametrize("metric", [Metric.MFU, Metric.TOKENS_PER_S])
def test_twice_the_speed_is_twice_the_value(metric: Metric) -> None:
    slow, fast = measurement(mfu=0.2, tokens_per_s=10.0), measurement(mfu=0.4, tokens_per_s=20.0)
    assert Objective(metric=metric).value(fast) == 2 * Objective(metric=metric).value(slow)


def test_the_value_of_a_step_divided_by_its_time_equals_the_prediction() -> None:
    job = big_job()
    predicted = predict_one(Layout.parse("zero8 tp8 sp"), job)
    step_s = predicted.step_time.total_s
    # the same quotients, rounded in another order
    assert Objective().value_per_step(job) / step_s == pytest.approx(predicted.mfu, rel=1e-12)
    tokens = Objective(metric=Metric.TOKENS_PER_S).value_per_step(job) / step_s
    assert tokens == pytest.approx(predicted.tokens_per_s, rel=1e-12)


@pytest.mark.parametrize("metric", [Metric.MFU, Metric.TOKENS_PER_S])
def test_the_best_ranks_first_and_equal_trials_by_number(metric: Metric) -> None:
    trials = [measured(0, 0.2), measured(3, 0.4), measured(1, 0.4), measured(2, 0.3)]
    assert [t.number for t in Objective(metric=metric).ranked(trials)] == [1, 3, 2, 0]


def test_an_emulated_layout_has_no_rank() -> None:
    emulated = measured(0, 0.9, cpu_layout(precision=Precision.FP8_EMULATED))
    assert Objective().ranked([emulated, measured(1, 0.1)]) == [measured(1, 0.1)]


@pytest.mark.parametrize(
    ("outcome", "numbers"), [(GateOutcome.PASSED, [0, 1]), (GateOutcome.NOT_GATED, [0, 1]), (GateOutcome.FAILED, [1])]
)
def test_a_failed_gate_alone_takes_the_rank(outcome: GateOutcome, numbers: list[int]) -> None:
    trials = [replace(measured(0, 0.9), gate=gate(outcome)), measured(1, 0.1)]
    assert [t.number for t in Objective().ranked(trials)] == numbers


def test_values_read_with_their_unit_and_as_robust_under_faults() -> None:
    assert Objective().in_words(0.41) == "41.0 % MFU"
    assert Objective(metric=Metric.TOKENS_PER_S).in_words(104e3) == "104 ktoken/s"
    objective = Objective(under_faults=True)
    assert (objective.noun, objective.in_words(0.382)) == ("robust MFU", "38.2 % robust MFU")
    profile = Objective(profile=(Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.SIMPLICITY, weight=1.0)))
    assert profile.figure(0.41234) == "0.4123"
    assert Objective().figure(0.41) == "41.0 %"
    assert Objective(metric=Metric.TOKENS_PER_JOULE).figure(0.62) == "0.62 token/J"


def under_trace(step_time_s: float) -> RobustMeasurement:
    trace = FaultTrace.parse("1;0_1;0.06", num_steps=2)
    times_s = (step_time_s, step_time_s)
    return RobustMeasurement.of(trace, times_s, model_flop=1.0, peak_flop_per_s=1.0, tokens=1)


def test_under_faults_what_counts_is_what_was_reached_under_the_trace() -> None:
    found = measurement(mfu=0.5, tokens_per_s=500.0, robust=under_trace(4.0))
    assert (Objective().value(found), Objective(under_faults=True).value(found)) == (0.5, 0.25)
    tokens = Objective(metric=Metric.TOKENS_PER_S, under_faults=True)
    assert (tokens.value(found), tokens.counted(found).step_time_s) == (0.25, 4.0)
    fast, robust = measured(0, 0.5), measured(1, 0.4)
    fast = replace(fast, measurement=measurement(mfu=0.5, robust=under_trace(4.0)))
    robust = replace(robust, measurement=measurement(mfu=0.4, robust=under_trace(3.0)))
    assert [t.number for t in Objective().ranked([fast, robust])] == [0, 1]
    assert [t.number for t in Objective(under_faults=True).ranked([fast, robust])] == [1, 0]


def test_a_profile_and_a_front_read_as_they_are_written() -> None:
    profile = (Weight(metric=Metric.MFU, weight=2), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=0.5))
    assert profile_text(profile) == "mfu=2,tokens_per_dollar=0.5"
    assert read_profile(profile_text(profile), "profile") == profile
    assert read_profile(" mfu , simplicity=3", "profile")[0] == Weight(metric=Metric.MFU, weight=1)
    front = (Metric.MFU, Metric.SIMPLICITY)
    assert read_metrics(metrics_text(front), "front") == front


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("token_per_joule=1", "tokens_per_joule"), ("mfu=fast", "mfu=1"), ("mfu=0", None), ("mfu=-1", None)],
)
def test_a_text_that_is_not_a_profile_is_refused_with_the_nearest_one(text: str, nearest: str | None) -> None:
    with pytest.raises(InvalidInput) as error:
        read_profile(text, "--profile")
    assert nearest is None or error.value.nearest == nearest
