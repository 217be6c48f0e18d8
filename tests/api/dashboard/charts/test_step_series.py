from __future__ import annotations

from api.dashboard.charts.loss_curves import loss_curves
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.step_series import step_series
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


def test_a_loss_gate_draws_the_candidate_in_ink_over_its_reference_in_pencil() -> None:
    gate = loss_gate_result(candidate_losses=((5.0, 4.5, 4.0), (5.1, 4.6, 4.1)), reference_losses=((5.0, 4.4, 3.9),))
    drawn = loss_curves(gate)
    assert len(list(each(drawn, "m-line"))) == 2 * 2
    assert len(list(each(drawn, "p-line"))) == 2 * 1


def test_a_curve_ends_where_its_loss_is_no_number_and_no_curve_is_no_picture() -> None:
    gate = loss_gate_result(candidate_losses=((5.0, 4.5, float("nan"), 4.0),), reference_losses=())
    path = next(each(loss_curves(gate), "m-line"))
    assert path.attrib["d"].count("L") == 1
    assert loss_curves(loss_gate_result(candidate_losses=(), reference_losses=())) == ""
