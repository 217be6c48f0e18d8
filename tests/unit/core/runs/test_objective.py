from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.layouts.choice import Precision, ShardLevel
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.loss_gate import GateOutcome, GateResult
from autotuner.core.runs.metric import Metric
from autotuner.core.runs.objective import Objective, Weight
from autotuner.core.runs.robust import RobustMeasurement
from autotuner.core.runs.trial import Trial, TrialState
from autotuner.costmodel.predict import predict_one
from tests.builders import big_job, cpu_layout, measurement, prediction


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
    predicted = predict_one(
        Layout(
            data_parallel_shard_degree=8,
            shard_level=ShardLevel.OPTIMIZER,
            tensor_parallel_degree=8,
            micro_batch_size=1,
            sequence_parallel=True,
        ),
        job,
    )
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


def test_values_read_with_their_unit() -> None:
    assert Objective().in_words(0.41) == "41.0 % MFU"
    assert Objective(metric=Metric.TOKENS_PER_S).in_words(104e3) == "104 ktoken/s"


def under_trace(step_time_s: float) -> RobustMeasurement:
    trace = FaultTrace.parse("1;0_1;0.06", num_steps=2)
    times_s = (step_time_s, step_time_s)
    return RobustMeasurement.of(trace, times_s, model_flop=1.0, peak_flop_per_s=1.0, tokens=1)


def test_under_faults_what_counts_is_what_was_reached_under_the_trace() -> None:
    found = measurement(mfu=0.5, tokens_per_s=500.0, robust=under_trace(4.0))
    assert (Objective().value(found), Objective(under_faults=True).value(found)) == (0.5, 0.25)
    tokens = Objective(metric=Metric.TOKENS_PER_S, under_faults=True)
    assert (tokens.value(found), tokens.counted(found).step_time_s) == (0.25, 4.0)


def test_a_layout_that_bears_faults_is_first_under_them_and_behind_without() -> None:
    fast, robust = measured(0, 0.5), measured(1, 0.4)
    fast = replace(fast, measurement=measurement(mfu=0.5, robust=under_trace(4.0)))
    robust = replace(robust, measurement=measurement(mfu=0.4, robust=under_trace(3.0)))
    assert [t.number for t in Objective().ranked([fast, robust])] == [0, 1]
    assert [t.number for t in Objective(under_faults=True).ranked([fast, robust])] == [1, 0]


def test_people_read_that_a_value_is_one_under_faults() -> None:
    objective = Objective(under_faults=True)
    assert (objective.noun, objective.in_words(0.382)) == ("robust MFU", "38.2 % robust MFU")


def test_a_profiles_value_is_a_bare_number_below_its_noun() -> None:
    profile = Objective(profile=(Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.SIMPLICITY, weight=1.0)))
    assert profile.figure(0.41234) == "0.4123"
    assert Objective().figure(0.41) == "41.0 %"
    assert Objective(metric=Metric.TOKENS_PER_JOULE).figure(0.62) == "0.62 token/J"
