from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.job import Calibration
from autotuner.core.layout import Layout
from autotuner.core.trial import TrialState
from autotuner.costmodel.predict import predict_one
from autotuner.report.comparison import comparison_report
from autotuner.search.results.comparison import Contender, side_by_side
from autotuner.search.results.reached import Standing
from tests.builders import big_job, breakdown, cpu_layout, failure, measurement, prediction, present, tiny_job, trial

JOB = tiny_job()


def ran(step_time_s: float = 1.0, error_s: float = 0.01, layout: Layout | None = None, **measured: Any) -> Contender:
    """A trial that was measured."""
    layout = layout or cpu_layout(tensor_parallel_degree=2)
    rates = {"tokens_per_s": 512 / step_time_s, "mfu": 0.3 / step_time_s}
    reached = measurement(step_time_s=step_time_s, step_time_interval_s=error_s, **rates, **measured)
    return Contender(layout=layout, job=JOB, prediction=prediction(), trial=trial(layout, measurement=reached))


def predicted(layout: Layout) -> Contender:
    return Contender(layout=layout, job=JOB, prediction=predict_one(layout, JOB))


def told(*of: Contender) -> tuple[str, ...]:
    """The headline of their report, and what it says of noise and parts."""
    report = comparison_report(side_by_side(of), of)
    return (report.headline, *map(str, report.facts))


def test_differences_are_said_where_they_are_beyond_the_noise_from_the_fastest_on() -> None:
    three = [ran(1.0), ran(1.1), ran(1.2)]
    assert told(*three)[:2] == (
        "A is 10.0 % faster than B and 20.0 % faster than C",
        "Each difference is beyond the noise of equal runs.",
    )
    found = side_by_side(three)
    assert (found.fastest, found.slowest, found.items[0].beside) == ("A", "C", None)
    assert told(ran(1.1), ran(1.0))[0] == "B is 10.0 % faster than A"
    assert told(ran(1.0, 0.02), ran(1.01, 0.02))[:2] == (
        "A and B cannot be told apart",
        "The difference is within the noise of equal runs.",
    )
    assert told(ran(1.0, 0.02), ran(1.01, 0.02), ran(1.3, 0.02))[:2] == (
        "A is 30.0 % faster than C and cannot be told from B",
        "1 of 2 differences are beyond the noise of equal runs.",
    )


def test_what_was_not_measured_stands_there_with_its_prediction_and_its_noise() -> None:
    known = Standing(probability_best=0.5, tied_with_best=True, step_time_s=1.0, value=1.0, relative_error=0.1)
    slower = Standing(probability_best=0.5, tied_with_best=True, step_time_s=1.1, value=1 / 1.1, relative_error=0.1)
    found = side_by_side([replace(ran(1.0), standing=known), replace(ran(1.1), standing=slower)])
    assert not present(found.items[1].beside).is_beyond_noise
    assert found.items[0].figures.relative_error == pytest.approx(0.01)
    died = ran()
    trial = replace(present(died.trial), state=TrialState.FAILED, measurement=None, failure=failure())
    found = side_by_side([ran(), replace(died, trial=trial)])
    assert found.items[1].figures.source == "predicted"


def test_a_layout_that_is_only_predicted_is_said_to_be() -> None:
    expected = replace(ran(), trial=None, prediction=prediction(relative_error=0.1))
    step_s = expected.prediction.step_time.total_s
    found = side_by_side([ran(step_s / 2, step_s / 200), expected])
    heading, noise, *_ = told(ran(step_s / 2, step_s / 200), expected)
    assert heading == "A is predicted 100.0 % faster than B"
    assert noise.endswith("what predictions and runs may be off by.")
    assert [one.figures.source for one in found.items] == ["measured", "predicted"]
    heading, *_ = told(ran(step_s / 2, step_s / 200), ran(step_s, step_s / 100), expected)
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
    found = side_by_side([ran(breakdown=breakdown()), ran(breakdown=breakdown())])
    assert found.parts_are == "measured"
    assert sum(part.seconds for part in found.items[0].parts) == pytest.approx(breakdown().step_s)
    found = side_by_side([ran(breakdown=breakdown()), ran()])
    assert [part.name for part in found.items[0].parts] == [
        "forward and backward",
        "waiting for gradients",
        "optimizer",
    ]
    assert found.parts_are == "measured"
    slow, fast = ran(1.1, breakdown=breakdown(optimizer_s=0.2)), ran(1.0, breakdown=breakdown(optimizer_s=0.1))
    blamed = prediction(step_time=replace(prediction().step_time, matrix_s=50.0))
    found = side_by_side([slow, replace(fast, prediction=blamed)])
    said = told(slow, replace(fast, prediction=blamed))[2]
    assert said == "Compared with A, a measured step of B spends 100 ms less on optimizer."
    assert found.shifts[0].name == "optimizer"


def test_predicted_parts_are_of_one_job_and_state_of_learning_or_compared_by_mfu() -> None:
    learnt = replace(JOB, calibration=Calibration(factor=3.0, deviation=0.1, num_runs=4))
    layout = cpu_layout(tensor_parallel_degree=2)
    before, after = (Contender(layout=layout, job=job, prediction=predict_one(layout, job)) for job in (JOB, learnt))
    found = side_by_side([before, after])
    assert (
        found.items[0].step_s == found.items[1].step_s == pytest.approx(after.prediction.step_time.total_s)
    )  # another order
    big = big_job()
    layout = Layout(data_parallel_shard_degree=big.cluster.world_size)
    other = Contender(layout=layout, job=big, prediction=prediction(mfu=0.1))
    found = side_by_side([ran(1.0), other])
    assert not found.is_one_job
    assert "ahead of B in MFU" in told(ran(1.0), other)[0]
