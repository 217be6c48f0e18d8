"""Comparisons of trials, and the front of a sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.job import Calibration
from autotuner.core.layout import Layout
from autotuner.core.measurement import Power, ResourceCost
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.trial import Trial, TrialState
from autotuner.costmodel.predict import predict_one
from autotuner.report.comparison import comparison_report
from autotuner.search.results.layout_comparison import LayoutCandidate, side_by_side
from autotuner.search.results.reached import Standing
from autotuner.search.results.sweep_front import SweepFront, sweep_front
from autotuner.search.sampler.pareto import adds_to_front, on_front, trial_values
from tests.builders import (
    big_job,
    breakdown,
    cpu_layout,
    failure,
    measurement,
    prediction,
    present,
    sweep_request,
    tiny_job,
    trial,
)
from tests.unit.search.results.trials import BASE, died, ran

# ---------------------------------------------------------------- comparison
JOB = tiny_job()


def candidate(
    step_time_s: float = 1.0, error_s: float = 0.01, layout: Layout | None = None, **measured: Any
) -> LayoutCandidate:
    """A trial that was measured."""
    layout = layout or cpu_layout(tensor_parallel_degree=2)
    rates = {"tokens_per_s": 512 / step_time_s, "mfu": 0.3 / step_time_s}
    reached = measurement(step_time_s=step_time_s, step_time_interval_s=error_s, **rates, **measured)
    return LayoutCandidate(layout=layout, job=JOB, prediction=prediction(), trial=trial(layout, measurement=reached))


def predicted(layout: Layout) -> LayoutCandidate:
    return LayoutCandidate(layout=layout, job=JOB, prediction=predict_one(layout, JOB))


def told(*of: LayoutCandidate) -> tuple[str, ...]:
    """The headline of their report, and what it says of noise and parts."""
    report = comparison_report(side_by_side(of), of)
    return (report.headline, *map(str, report.facts))


def test_differences_are_said_where_they_are_beyond_the_noise_from_the_fastest_on() -> None:
    three = [candidate(1.0), candidate(1.1), candidate(1.2)]
    assert told(*three)[:2] == (
        "A is 10.0 % faster than B and 20.0 % faster than C",
        "Each difference is beyond the noise of equal runs.",
    )
    found = side_by_side(three)
    assert (found.fastest, found.slowest, found.items[0].beside) == ("A", "C", None)
    assert told(candidate(1.1), candidate(1.0))[0] == "B is 10.0 % faster than A"
    assert told(candidate(1.0, 0.02), candidate(1.01, 0.02))[:2] == (
        "A and B do not differ measurably",
        "The difference is within the noise of equal runs.",
    )
    assert told(candidate(1.0, 0.02), candidate(1.01, 0.02), candidate(1.3, 0.02))[:2] == (
        "A is 30.0 % faster than C and does not differ measurably from B",
        "1 of 2 differences are beyond the noise of equal runs.",
    )


def test_a_value_that_was_not_measured_is_shown_with_its_prediction_and_noise() -> None:
    known = Standing(probability_best=0.5, tied_with_best=True, step_time_s=1.0, value=1.0, relative_error=0.1)
    slower = Standing(probability_best=0.5, tied_with_best=True, step_time_s=1.1, value=1 / 1.1, relative_error=0.1)
    found = side_by_side([replace(candidate(1.0), standing=known), replace(candidate(1.1), standing=slower)])
    assert not present(found.items[1].beside).is_beyond_noise
    assert found.items[0].figures.relative_error == pytest.approx(0.01)
    died = candidate()
    trial = replace(present(died.trial), state=TrialState.FAILED, measurement=None, failure=failure())
    found = side_by_side([candidate(), replace(died, trial=trial)])
    assert found.items[1].figures.source == "predicted"


def test_a_layout_that_is_only_predicted_is_said_to_be() -> None:
    expected = replace(candidate(), trial=None, prediction=prediction(relative_error=0.1))
    step_s = expected.prediction.step_time.total_s
    found = side_by_side([candidate(step_s / 2, step_s / 200), expected])
    heading, noise, *_ = told(candidate(step_s / 2, step_s / 200), expected)
    assert heading == "A is predicted 100.0 % faster than B"
    assert noise.endswith("the error of predictions and runs.")
    assert [one.figures.source for one in found.items] == ["measured", "predicted"]
    heading, *_ = told(candidate(step_s / 2, step_s / 200), candidate(step_s, step_s / 100), expected)
    assert heading == "A is 100.0 % faster than B and is predicted 100.0 % faster than C"


def test_options_that_differ_are_named_and_predicted_parts_shift_to_the_fastest() -> None:
    by_tensor, by_data = cpu_layout(tensor_parallel_degree=2), cpu_layout(data_parallel_replicate_degree=2)
    assert side_by_side([predicted(by_tensor), predicted(by_data)]).differing == (
        "data_parallel_degree",
        "tensor_parallel_degree",
    )
    assert side_by_side([predicted(by_data), predicted(by_data)]).differing == ()
    of = [predicted(by_tensor), predicted(by_data)]
    found = side_by_side(of)
    names = [[part.name for part in one.parts] for one in found.items]
    assert names[0] == names[1]
    assert found.parts_are == "predicted"
    for item, one in zip(found.items, of, strict=True):
        assert item.step_s == pytest.approx(one.prediction.step_time.total_s)
    moved = found.at(found.fastest).step_s - found.at(present(found.slowest)).step_s
    assert sum(shift.seconds for shift in found.shifts) == pytest.approx(moved)
    assert "a predicted step of" in told(*of)[2]


def test_measured_parts_are_compared_and_shifted_in_kinds_that_all_tell() -> None:
    found = side_by_side([candidate(breakdown=breakdown()), candidate(breakdown=breakdown())])
    assert found.parts_are == "measured"
    assert sum(part.seconds for part in found.items[0].parts) == pytest.approx(breakdown().step_s)
    found = side_by_side([candidate(breakdown=breakdown()), candidate()])
    assert [part.name for part in found.items[0].parts] == [
        "forward and backward",
        "waiting for gradients",
        "optimizer",
    ]
    assert found.parts_are == "measured"
    slow, fast = (
        candidate(1.1, breakdown=breakdown(optimizer_s=0.2)),
        candidate(1.0, breakdown=breakdown(optimizer_s=0.1)),
    )
    blamed = prediction(step_time=replace(prediction().step_time, matrix_s=50.0))
    found = side_by_side([slow, replace(fast, prediction=blamed)])
    said = told(slow, replace(fast, prediction=blamed))[2]
    assert said == "Compared with A, a measured step of B spends 100 ms less on optimizer."
    assert found.shifts[0].name == "optimizer"


def test_predicted_parts_are_of_one_job_and_state_of_learning_or_compared_by_mfu() -> None:
    learnt = replace(JOB, calibration=Calibration(factor=3.0, deviation=0.1, num_runs=4))
    layout = cpu_layout(tensor_parallel_degree=2)
    before, after = (
        LayoutCandidate(layout=layout, job=job, prediction=predict_one(layout, job)) for job in (JOB, learnt)
    )
    found = side_by_side([before, after])
    assert (
        found.items[0].step_s == found.items[1].step_s == pytest.approx(after.prediction.step_time.total_s)
    )  # another order
    big = big_job()
    layout = Layout(data_parallel_shard_degree=big.cluster.world_size)
    other = LayoutCandidate(layout=layout, job=big, prediction=prediction(mfu=0.1))
    found = side_by_side([candidate(1.0), other])
    assert not found.is_one_job
    assert "ahead of B in MFU" in told(candidate(1.0), other)[0]


# ---------------------------------------------------------------- sweep front
METRICS = (Metric.MFU, Metric.TOKENS_PER_JOULE)
REQUEST = sweep_request(job=big_job(), objective=Objective(front=METRICS))


def drawing(number: int, step_time_s: float, power_w: float, *, complexity: float = 1.0) -> Trial:
    """A trial of 1,000 tokens a step, all of whose job draws so much."""
    power = Power(accelerators_w=power_w, hosts_w=0.0, network_w=0.0, building_w=0.0)
    resource_cost = ResourceCost(power=power, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=complexity)
    layout = replace(BASE, micro_batch_size=2**number)
    return ran(number, layout, step_time_s, measured={"resource_cost": resource_cost})


FAST, MIDDLE, FRUGAL = drawing(0, 1.0, 4000), drawing(1, 1.1, 2800), drawing(2, 2.0, 1250)
WORSE = drawing(3, 2.2, 2000)


def of(*trials: Trial, metrics: tuple[Metric, ...] = (), profile: tuple[Weight, ...] = ()) -> SweepFront:
    return sweep_front(REQUEST, trials, metrics, profile)


def test_a_front_is_of_ranked_trials_that_tell_all_metrics_and_no_other_beats() -> None:
    front = of(WORSE, FRUGAL, FAST, MIDDLE)
    assert [point.trial for point in front.points] == [0, 1, 2]
    assert [one.trial for one in front.behind] == [3]
    assert front.points[0].values == pytest.approx((0.4, 0.25))
    front = of(died(0, BASE))
    assert (front.points, front.behind, front.progress) == ((), (), ())
    assert on_front(FRONT, [WORSE, FRUGAL, FAST, MIDDLE]) == [FRUGAL, FAST, MIDDLE]
    assert on_front(FRONT, []) == []
    assert [one.trial for one in trial_values(FRONT, FRONT.front, [ran(0, BASE, 1.0), FAST])] == [FAST]
    front = of(FAST, ran(7, BASE, 1.0))
    assert front.num_without_values == 1
    assert [point.trial for point in front.points] == [0]


def test_each_point_says_what_it_is_the_best_in_and_each_step_what_it_costs_once() -> None:
    front = of(FAST, MIDDLE, FRUGAL, WORSE)
    fast, _, frugal = front.points
    assert fast.best_in == (Metric.MFU,)
    (trade,) = fast.trades
    assert trade.trial == 1
    (gain,) = trade.gains
    assert gain.metric is Metric.TOKENS_PER_JOULE
    assert gain.share == pytest.approx(4000 / 3080 - 1)
    (cost,) = trade.costs
    assert cost.metric is Metric.MFU
    assert cost.share == pytest.approx(1 / 1.1 - 1)
    assert frugal.num_beaten == 1
    three = (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    plain = drawing(5, 1.5, 4000, complexity=0.0)
    front = of(FAST, plain, metrics=three)
    (trade,) = front.points[1].trades
    assert [one.metric for one in trade.gains] == [Metric.MFU, Metric.TOKENS_PER_JOULE]
    assert [one.metric for one in trade.costs] == [Metric.SIMPLICITY]


def test_one_point_is_named_by_a_profile_the_knee_or_what_the_front_loses_without_it() -> None:
    front = of(FAST, MIDDLE, FRUGAL)
    assert [point.is_knee for point in front.points] == [False, True, False]
    assert not any(point.is_knee for point in of(FAST, FRUGAL).points)  # of two, both are ends
    near = drawing(4, 1.01, 3950)
    shares = {point.trial: point.volume_share for point in of(FAST, near, FRUGAL).points}
    assert 0 < shares[4] < shares[2] < 1
    assert sum(shares.values()) <= 1  # what several dominate is lost with none of them

    def first(*weights: float) -> int:
        profile = tuple(Weight(metric=metric, weight=weight) for metric, weight in zip(METRICS, weights, strict=True))
        return next(point.trial for point in of(FAST, MIDDLE, FRUGAL, profile=profile).points if point.is_first)

    assert (first(9, 1), first(1, 9)) == (0, 2)
    assert [point.trial for point in of(MIDDLE, FAST).points if point.is_first] == [0]


def test_a_trial_behind_the_front_names_the_trial_that_beats_it_beyond_the_interval() -> None:
    (behind,) = of(FAST, MIDDLE, FRUGAL, WORSE).behind
    assert behind.by == 1
    assert [change.metric for change in behind.changes] == [*METRICS]
    assert not behind.may_belong
    (behind,) = of(FAST, drawing(5, 1.001, 4000)).behind
    assert behind.may_belong


def test_other_metrics_make_another_front_and_usual_ones_are_known() -> None:
    plain = drawing(5, 2.5, 4000, complexity=0.0)
    front = of(FAST, FRUGAL, plain, metrics=(Metric.MFU, Metric.SIMPLICITY))
    assert [point.trial for point in front.points] == [0, 5]
    request = sweep_request(job=big_job())
    assert sweep_front(request, [FAST]).metrics == (Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY)
    assert sweep_front(sweep_request(), [FAST]).metrics == (Metric.MFU, Metric.SIMPLICITY)  # no draw is known of cores


def test_the_hypervolume_rises_trial_by_trial_unless_values_are_within_a_hundredth() -> None:
    progress = {reach.trial: reach.volume_share for reach in of(FAST, MIDDLE, FRUGAL, WORSE).progress}
    assert list(progress) == [0, 1, 2, 3]
    assert progress[0] < progress[1] < progress[2] == pytest.approx(1.0)
    assert progress[3] == pytest.approx(1.0)
    assert not adds_to_front((0.4, 2.0), [(0.397, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.39, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.5, 1.9), (0.3, 2.5)])
    assert adds_to_front((0.4, 2.0), [])


# ---------------------------------------------------------------- which trials are on a front
FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE))
