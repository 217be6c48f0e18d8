"""Tests of ``autotuner.core.objective``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster, Tariff
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.measurement import RobustMeasurement
from autotuner.core.objective import (
    Metric,
    Objective,
    Weight,
    metrics_text,
    metrics_told,
    profile_text,
    read_metrics,
    read_profile,
    require_told,
)
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, cpu_layout, h100_cluster, measurement, prediction

PRICED = h100_cluster(price_per_accelerator_hour=2.0, tariff=Tariff(co2_kg_per_kwh=0.3))
BARE = h100_cluster()
WITHOUT_POWER = replace(PRICED, accelerator=replace(PRICED.accelerator, power_w=0.0))


def test_a_cluster_with_power_price_and_mix_tells_all_but_robustness() -> None:
    assert set(Metric) - set(metrics_told(PRICED)) == {Metric.ROBUSTNESS}
    assert metrics_told(PRICED, has_trace=True) == tuple(Metric)


@pytest.mark.parametrize(
    ("metric", "cluster", "named", "nearest"),
    [
        (Metric.TOKENS_PER_JOULE, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
        (Metric.TOKENS_PER_DOLLAR, BARE, "price_per_accelerator_hour", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, BARE, "tariff.co2_kg_per_kwh", "tokens_per_joule"),
        (Metric.TOKENS_PER_KG_CO2, WITHOUT_POWER, "accelerator.power_w", "tokens_per_s"),
    ],
)
def test_what_cannot_be_told_is_refused_with_what_it_needs(
    metric: Metric, cluster: Cluster, named: str, nearest: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        require_told(Objective(metric=metric), cluster)
    assert (refused.value.field, refused.value.value) == ("objective.metric", metric.value)
    assert refused.value.nearest == nearest


def test_what_a_cluster_cannot_tell_is_refused_under_the_name_of_the_profile_or_front_that_asks_for_it() -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.TOKENS_PER_DOLLAR, weight=1))
    with pytest.raises(InvalidInput, match=r"objective\.profile = 'tokens_per_dollar'"):
        require_told(Objective(profile=profile), BARE)
    with pytest.raises(InvalidInput, match=r"objective\.front = 'robustness'.*fault_trace.*simplicity"):
        require_told(Objective(front=(Metric.MFU, Metric.ROBUSTNESS)), PRICED)
    metered = replace(BARE, tariff=Tariff(energy_price_per_kwh=0.1))
    require_told(Objective(metric=Metric.TOKENS_PER_DOLLAR), metered)
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


def test_what_a_step_is_worth_over_its_time_is_what_a_prediction_says() -> None:
    job = big_job()
    predicted = predict_one(Layout.parse("zero8 tp8 sp"), job)
    step_s = predicted.step_time.total_s
    # the same quotients, rounded in another order
    assert Objective().worth_per_step(job) / step_s == pytest.approx(predicted.mfu, rel=1e-12)
    tokens = Objective(metric=Metric.TOKENS_PER_S).worth_per_step(job) / step_s
    assert tokens == pytest.approx(predicted.tokens_per_s, rel=1e-12)


@pytest.mark.parametrize("metric", [Metric.MFU, Metric.TOKENS_PER_S])
def test_the_best_ranks_first_and_equal_trials_by_number(metric: Metric) -> None:
    trials = [measured(0, 0.2), measured(3, 0.4), measured(1, 0.4), measured(2, 0.3)]
    assert [t.number for t in Objective(metric=metric).ranked(trials)] == [1, 3, 2, 0]


def test_what_is_emulated_has_no_rank() -> None:
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
def test_what_is_no_profile_names_the_nearest(text: str, nearest: str | None) -> None:
    with pytest.raises(InvalidInput) as error:
        read_profile(text, "--profile")
    assert nearest is None or error.value.nearest == nearest
