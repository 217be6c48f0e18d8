from __future__ import annotations

import pytest

from api.dashboard.charts.spread import Spread
from api.dashboard.charts.sweep.calibration import agreement
from tests.api.dashboard.charts.drawn import each, links, number, one, words
from tests.api.dashboard.charts.sweep.points import many, point


def test_a_right_prediction_lies_on_the_diagonal() -> None:
    trials = [point(0, 0.4), point(1, 0.3, predicted=Spread.within_factor(0.36, 0.1))]
    drawn = agreement(trials, 700)
    assert drawn is not None
    right, wrong = each(drawn, "m-dot")
    (x1, y1), (x2, y2) = (map(float, part.split()) for part in one(drawn, "p-line").attrib["d"].strip("M").split("L"))
    along = (number(right, "cx") - x1) / (x2 - x1)
    assert number(right, "cy") == pytest.approx(y1 + along * (y2 - y1), abs=0.2)
    assert number(wrong, "cy") > y1 + (number(wrong, "cx") - x1) / (x2 - x1) * (y2 - y1)


def test_the_band_says_how_wide_it_is_and_every_point_names_its_trial() -> None:
    drawn = agreement([point(0, 0.4), point(1, 0.3)], 700, kind="simulated")
    assert drawn is not None
    assert "± 10 %" in words(drawn)
    assert "simulated MFU, %" in words(drawn)
    assert links(drawn)[0][0].text == "tp1, trial 0: simulated 40.0 %, predicted 40.0 %"


def test_a_prediction_of_unknown_error_has_no_band() -> None:
    drawn = agreement([point(0, 0.4, predicted=Spread.within_factor(0.4, None))], 350)
    assert drawn is not None
    assert not any(word.startswith("±") for word in words(drawn))


def test_without_a_result_there_is_no_picture() -> None:
    assert agreement([point(0, None)], 700) is None


def test_a_thousand_trials_are_one_path() -> None:
    drawn = agreement(many(1000), 700)
    assert drawn is not None
    assert len(drawn) < 20_000
