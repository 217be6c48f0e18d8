from __future__ import annotations

from api.dashboard.charts.loss_curves import loss_curves
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.step_series import step_series
from autotuner.domain.jobs.fault_trace import FaultTrace
from autotuner.domain.runs.link_event import LinkEvent, LinkEventKind
from autotuner.domain.runs.robust import RobustMeasurement
from tests.api.dashboard.charts.drawn import each, number, words
from tests.api.service import loss_gate_result
from tests.builders import step_report

STEPS = [step_report(step, step_time_s=0.5 + 0.2 * (step < 2), is_warmup=step < 2) for step in range(8)]


def test_every_step_is_a_dot_and_those_to_warm_up_are_soft_and_shaded() -> None:
    drawn = step_series(STEPS, None)
    assert len(list(each(drawn, "m-dot"))) == 2 * 8  # for a desk and for a phone
    assert len(list(each(drawn, "m-dot soft"))) == 2 * 2
    assert "Times of 8 steps, 2 of them to warm up" in drawn
    assert "warm-up" in words(drawn)


def test_the_median_and_its_interval_lie_over_the_steps_that_count() -> None:
    drawn = step_series(STEPS, Spread.within(0.5, 0.01))
    band, line = next(each(drawn, "p-band")), next(each(drawn, "m-line"))
    assert number(band, "x") == number(line, "x1") > number(next(each(drawn, "band")), "x")
    assert "median 500 ms ± 10 ms" in words(drawn)


def test_one_step_alone_is_drawn_and_no_more_than_a_picture_has_room_for() -> None:
    assert list(each(step_series(STEPS[:1], None), "m-dot"))
    many = [step_report(step) for step in range(5000)]
    assert len(list(each(step_series(many, None), "m-dot"))) <= 2 * 400


def test_stretches_of_the_trace_are_shaded_and_events_are_marks_on_the_axis() -> None:
    trace = FaultTrace.parse("2;2_3;0.06\n5;2_3;0", num_steps=6)
    robust = RobustMeasurement.of(
        trace, (0.5, 0.5, 0.9, 0.6, 0.6, 0.5), model_flop=1e12, peak_flop_per_s=1e13, tokens=1000
    )
    steps = [*STEPS, *(step_report(8 + number, is_under_trace=True) for number in range(6))]
    events = (
        LinkEvent(step=11, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06),
        LinkEvent(step=11, kind=LinkEventKind.REPLANNED, warm_up=(10, 5, 3, 1), delegated=True),
    )
    drawn = step_series(steps, Spread.within(0.5, 0.01), robust=robust, events=events)
    shaded, marks = list(each(drawn, "late-link")), list(each(drawn, "event-mark"))
    assert (len(shaded), len(marks)) == (2, 2)  # for a desk and for a phone
    assert "step 12: slow link, stages 2 and 3, 60 ms late; re-planned, 10 5 3 1 forwards ahead" in drawn
    assert "mean under the trace 600 ms" in words(drawn)
    assert min(number(line, "x2") for line in each(drawn, "m-line")) < number(shaded[0], "x")  # the median ends before
    assert "6 under the fault trace" in drawn


def test_a_loss_gate_draws_the_candidate_in_ink_over_its_reference_in_pencil() -> None:
    gate = loss_gate_result(candidate_losses=((5.0, 4.5, 4.0), (5.1, 4.6, 4.1)), reference_losses=((5.0, 4.4, 3.9),))
    drawn = loss_curves(gate)
    assert len(list(each(drawn, "m-line"))) == 2 * 2
    assert len(list(each(drawn, "reference"))) == 2 * 1


def test_a_curve_ends_where_its_loss_is_no_number_and_no_curve_is_no_picture() -> None:
    gate = loss_gate_result(candidate_losses=((5.0, 4.5, float("nan"), 4.0),), reference_losses=())
    path = next(each(loss_curves(gate), "m-line"))
    assert path.attrib["d"].count("L") == 1
    assert loss_curves(loss_gate_result(candidate_losses=(), reference_losses=())) == ""
