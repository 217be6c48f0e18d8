from __future__ import annotations

import pytest

from api.dashboard.charts.sweep.history import history, improvements
from tests.api.dashboard.charts.drawn import each, links, number, one, words
from tests.api.dashboard.charts.sweep.points import many, point


def test_only_trials_that_beat_all_before_them_raise_the_best() -> None:
    rises = improvements([point(0, None), point(1, 0.3), point(2, 0.2), point(3, 0.36)])
    assert [(rise.position, rise.mfu) for rise in rises] == [(2, 0.3), (4, 0.36)]
    assert rises[0].gain is None
    assert rises[1].gain == pytest.approx(0.2)


def test_without_a_result_there_is_no_picture() -> None:
    assert history([], 700) is None
    assert history([point(0, None)], 700) is None


def test_each_trial_is_a_link_that_names_it_and_failures_are_crosses() -> None:
    drawn = history([point(0, 0.3), point(1, None), point(2, 0.4)], 700)
    assert drawn is not None
    said = {link.attrib["href"]: link[0].text for link in links(drawn)}
    assert said["/trials/tr-2"] == "tp3, trial 2: 40.0 % MFU"
    assert said["/trials/tr-1"] == "tp2, trial 1: out of memory"
    assert len(list(each(drawn, "cross"))) == 1
    assert "✕ no result: 1" in words(drawn)


def test_only_trials_that_raised_the_best_are_stops_of_the_tab_key() -> None:
    drawn = history([point(0, 0.3), point(1, 0.2), point(2, 0.4)], 700)
    assert drawn is not None
    stops = [link.attrib["data-trial"] for link in links(drawn) if "tabindex" not in link.attrib]
    assert stops == ["0", "2"]


def test_the_band_begins_where_the_stairs_are_and_closes_in_on_them() -> None:
    trials = [point(0, 0.40), point(1, 0.41, expected_gain=0.1), point(2, 0.39, expected_gain=0.02)]
    drawn = history(trials, 700, remaining_gain=0.005)
    assert drawn is not None
    upper = [float(part.split()[1]) for part in one(drawn, "p-line").attrib["d"].strip("M").split("L")]
    best = number(one(drawn, "m-dot win"), "cy")
    assert upper == sorted(upper)
    assert 0 < best - upper[-1] < 10
    assert "0.5 % more" in words(drawn)


def test_trials_of_which_nobody_recorded_what_was_expected_have_no_band() -> None:
    drawn = history([point(0, 0.4), point(1, 0.41)], 700)
    assert drawn is not None
    assert not list(each(drawn, "p-band"))


def test_the_layout_that_runs_today_is_named() -> None:
    drawn = history([point(0, 0.4, is_incumbent=True), point(1, 0.41)], 700)
    assert drawn is not None
    assert "runs today" in words(drawn)


@pytest.mark.parametrize("width", [700, 350])
def test_everything_lies_inside_the_picture(width: int) -> None:
    drawn = history([*many(30), point(30, None)], width)
    assert drawn is not None
    for dot in each(drawn, "m-dot"):
        assert 0 <= number(dot, "cx") <= width
        assert 0 <= number(dot, "cy") <= 330


def test_a_thousand_trials_are_a_small_picture_in_which_each_can_be_found() -> None:
    drawn = history(many(1000), 700)
    assert drawn is not None
    assert len(drawn) < 25_000
    crowd = one(drawn, "m-cloud")
    assert crowd.attrib["data-trials"] == "0-999"
    assert crowd.attrib["d"].count("M") == 1000
