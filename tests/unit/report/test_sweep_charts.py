"""Charts of a sweep: which trials they show, and the figures that they draw."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from autotuner.core.layout import Layout
from autotuner.core.measurement import RobustMeasurement
from autotuner.core.objective import Objective
from autotuner.core.trial import Trial, TrialState
from autotuner.report.charts import Dots, Failures
from autotuner.report.html import Html
from autotuner.report.layouts import in_short
from autotuner.report.markdown import markdown
from autotuner.report.sweep import charts_report
from autotuner.report.sweep_charts import agreement, best_so_far, memory_front, on_front, rises, trial_points
from autotuner.report.terminal import render
from autotuner.search.results.accuracy import accuracy
from autotuner.search.results.sensitivity import choices
from tests.builders import cpu_layout, estimate, failure, measurement, prediction, present, proxy_trial, sweep_request

_LIMIT_BYTES = 80e9


def trial(number: int = 0, state: TrialState = TrialState.COMPLETE, **changes: Any) -> Trial:
    given = {"layout": cpu_layout(micro_batch_size=number + 1), "prediction": prediction(), **changes}
    if state is TrialState.COMPLETE:
        given.setdefault("measurement", measurement())
    return Trial(id=f"tr-{number}", sweep_id="sw-1", number=number, state=state, **given)


def test_a_trial_is_a_point_with_what_it_reached_and_where_its_page_is() -> None:
    (point,) = trial_points(
        [trial(measurement=measurement(mfu=0.4, step_time_s=2.0, step_time_interval_s=0.1))], root="/at"
    )
    assert point.reached is not None
    assert (point.reached.low, point.reached.high) == pytest.approx((0.38, 0.42))
    assert point.href == "/at/trials/tr-0"
    assert point.failure == ""


def test_under_a_fault_trace_a_point_is_what_was_reached_under_it() -> None:
    robust = RobustMeasurement(step_time_s=2.5, mfu=0.3, tokens_per_s=1e3, num_steps=1, stretches=())
    ran = trial(measurement=measurement(mfu=0.4, robust=robust), prediction=prediction(mfu=0.5, robust_mfu=0.35))
    (healthy,), (under,) = trial_points([ran]), trial_points([ran], objective=Objective(under_faults=True))
    assert (healthy.mfu, under.mfu) == (0.4, 0.3)
    assert (healthy.predicted.value, under.predicted.value) == (0.5, 0.35)


def test_what_goes_on_and_what_repeats_another_is_left_out() -> None:
    shown = trial_points([trial(0), trial(1, TrialState.RUNNING), trial(2, repeats=0), trial(3, TrialState.QUEUED)])
    assert [point.number for point in shown] == [0]


def test_a_failure_says_its_cause_and_what_was_ended_on_purpose_is_none() -> None:
    dead, stopped = trial_points([trial(0, TrialState.FAILED, failure=failure()), trial(1, TrialState.PRUNED)])
    assert (dead.failure, dead.is_out_of_memory, dead.mfu) == ("out of memory", True, None)
    assert (stopped.failure, stopped.mfu) == ("", None)


def test_a_trial_on_fewer_ranks_counts_with_what_is_estimated_of_the_layout() -> None:
    (point,) = trial_points([trial(scaled=proxy_trial(measurement=measurement()), estimate=estimate(mfu=0.1875))])
    assert point.mfu == 0.1875
    assert point.peak_bytes == estimate().full_size.peak_bytes


def test_a_layout_in_short_has_its_degrees() -> None:
    assert in_short(Layout.parse("dp2 fsdp4 tp8 pp2 1f1b mb4")) == "tp8 pp2 dp8 mb4"


def test_a_sweep_without_a_result_has_no_charts() -> None:
    points = trial_points([trial(0, TrialState.FAILED, failure=failure())])
    assert (best_so_far(points), memory_front(points, _LIMIT_BYTES), agreement(points)) == (None, None, None)


def test_charts_and_the_tables_beside_them_show_the_same_trials() -> None:
    points = trial_points(
        [trial(0), trial(1, TrialState.FAILED, failure=failure()), trial(2, measurement=measurement(mfu=0.5))]
    )
    chart = best_so_far(points)
    assert chart is not None
    assert [point.number for _, point, _ in rises(points)] == [0, 2]
    assert [point.number for point in on_front(points)] == [2]
    best = [dot.key for mark in chart.marks if isinstance(mark, Dots) for dot in mark.dots if dot.look == "best"]
    failed = [dot.key for mark in chart.marks if isinstance(mark, Failures) for dot in mark.dots]
    assert (best, failed) == ([2], [1])


@pytest.mark.parametrize("is_simulated", [False, True])
def test_what_was_simulated_is_told_apart_in_every_chart(is_simulated: bool) -> None:
    points = trial_points([trial(0), trial(1)], is_simulated=is_simulated)
    charts = [best_so_far(points), memory_front(points, _LIMIT_BYTES), agreement(points)]
    dots = [dot for chart in charts if chart for mark in chart.marks if isinstance(mark, Dots) for dot in mark.dots]
    assert {dot.is_simulated for dot in dots} == {is_simulated}


def test_what_trials_show_has_the_same_figures_on_every_surface() -> None:
    request, trials = sweep_request(), [trial(0, measurement=measurement(mfu=0.4)), trial(1)]
    found = charts_report(
        request,
        trials,
        source="measured",
        choices=choices(request, trials),
        accuracy=accuracy(request, trials),
    )
    assert [one.key for one in found.sections] == ["history", "front", "parallel", "mattered", "calibration"]
    console = Console(width=200)
    with console.capture() as printed:
        console.print(render(found))
    for text in (printed.get(), str(Html().sections(found)), markdown(found)):
        assert "40.0 %" in text
        assert "1 trial raised the best" in text
        assert "1 layout that none beats with no more memory" in text


def test_errors_of_predictions_are_said_with_their_medians_and_the_intervals_that_held() -> None:
    total_s = prediction(relative_error=0.1).step_time.total_s
    steps = [measurement(step_time_s=factor * total_s) for factor in (1.0, 1.09, 0.92, 1.2)]
    trials = [trial(n, measurement=one, prediction=prediction(relative_error=0.1)) for n, one in enumerate(steps)]
    request = sweep_request()
    right = accuracy(request, trials)
    found = charts_report(request, trials, source="measured", choices=choices(request, trials), accuracy=right)
    note = present(found["calibration"]).note
    assert note.startswith(
        "3 of 4 step times lie within the 80 % interval of their prediction. Half of the step times are off by less "
        "than 9 %; in the median they are 4.5 % longer than predicted."
    )


def test_trials_without_a_result_show_nothing() -> None:
    request, trials = sweep_request(), [trial(0, TrialState.FAILED, failure=failure())]
    found = charts_report(
        request, trials, source="measured", choices=choices(request, trials), accuracy=accuracy(request, trials)
    )
    assert found.sections == ()
