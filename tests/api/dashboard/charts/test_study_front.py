from __future__ import annotations

from markupsafe import Markup

from api.dashboard.charts.study_front import study_front
from api.schemas import OptimizerTrialView
from tests.api.dashboard.charts.drawn import each, one
from tests.studies import reached_trial


def drawn(*pairs: tuple[float, float]) -> Markup:
    trials = [reached_trial(number, *pair) for number, pair in enumerate(pairs)]
    on_front = {0, 1}
    shown = [
        OptimizerTrialView.of(trial, window_sequences=32, is_on_front=trial.number in on_front) for trial in trials
    ]
    return Markup(study_front(shown).split('<div class="hide-wide"')[0])


def test_the_front_is_drawn_in_steps_since_nothing_lies_between_two_candidates() -> None:
    moves = one(drawn((2.0, 3.0), (8.0, 1.0)), "m-front").attrib["d"].removeprefix("M").split("L")
    xs, ys = zip(*(map(float, move.split()) for move in moves), strict=True)
    assert len(moves) == 3
    assert xs[1] == xs[2]
    assert ys[0] == ys[1]


def test_candidates_on_the_front_are_painted_above_those_behind() -> None:
    dots = [element.get("class") for element in each(drawn((2.0, 3.0), (8.0, 1.0), (8.1, 1.1)), "m-dot")]
    assert dots == ["m-dot soft", "m-dot win", "m-dot win"]
