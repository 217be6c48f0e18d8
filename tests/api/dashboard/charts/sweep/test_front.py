from __future__ import annotations

import pytest

from api.dashboard.charts.sweep.front import memory_front, on_front
from api.dashboard.charts.sweep.points import CloudPoint
from tests.api.dashboard.charts.drawn import each, links, number, one, words
from tests.api.dashboard.charts.sweep.points import GB, many, point

CHEAP, DEAR, BEATEN = point(0, 0.3, 40), point(1, 0.4, 70), point(2, 0.35, 75)


def test_the_front_has_what_no_other_beats_with_no_more_memory() -> None:
    assert on_front([DEAR, BEATEN, CHEAP, point(3, None)]) == (CHEAP, DEAR)


def test_of_equal_memory_only_the_fastest_is_on_the_front() -> None:
    assert on_front([point(0, 0.3, 50), point(1, 0.4, 50)]) == (point(1, 0.4, 50),)


def test_the_best_is_green_and_named_and_the_limit_stands_behind_it() -> None:
    drawn = memory_front([CHEAP, DEAR, BEATEN], 700, limit_bytes=80 * GB)
    assert drawn is not None
    limit = number(one(drawn, "limit"), "x1")
    assert number(one(drawn, "m-dot win"), "cx") < limit
    assert "limit 80 GB" in words(drawn)
    assert "tp2" in words(drawn)
    assert {link.attrib["href"] for link in links(drawn)} == {"/trials/tr-0", "/trials/tr-1", "/trials/tr-2"}


def test_what_ran_out_of_memory_lies_beyond_the_limit() -> None:
    drawn = memory_front([DEAR, point(3, None, 78)], 700, limit_bytes=80 * GB)
    assert drawn is not None
    cross = one(drawn, "cross").attrib["d"]
    assert float(cross[1:].split()[0]) > number(one(drawn, "limit"), "x1") - 4


def test_a_limit_far_away_squeezes_nobody() -> None:
    drawn = memory_front([CHEAP, DEAR], 700, limit_bytes=900 * GB)
    assert drawn is not None
    assert not list(each(drawn, "limit"))
    assert number(one(drawn, "m-dot win"), "cx") > 500


def test_what_is_predicted_alone_is_one_path_behind_the_results() -> None:
    predicted = [CloudPoint(peak_bytes=50 * GB, mfu=0.33)] * 800
    drawn = memory_front([CHEAP, DEAR], 700, limit_bytes=80 * GB, predicted=predicted)
    assert drawn is not None
    assert one(drawn, "p-cloud").attrib["d"].count("M") == 800
    assert drawn.index("p-cloud") < drawn.index("m-dot")


def test_labels_keep_apart_and_inside_the_plot() -> None:
    trials = [point(index, 0.30 + 0.001 * index, 40 + index, name="tp8 pp8 dp128 mb1 " * 2) for index in range(10)]
    drawn = memory_front(trials, 350, limit_bytes=None)
    assert drawn is not None
    named = [element for element in each(drawn, "halo") if "tp8" in (element.text or "")]
    assert len(named) <= 1


def test_a_single_trial_without_memory_or_limit_can_be_drawn() -> None:
    drawn = memory_front([point(0, 0.4, 0.0)], 350, limit_bytes=None)
    assert drawn is not None
    assert 0 <= number(one(drawn, "m-dot win"), "cx") <= 350


def test_without_a_result_there_is_no_picture() -> None:
    assert memory_front([point(0, None)], 700, limit_bytes=80 * GB) is None


@pytest.mark.parametrize("width", [700, 350])
def test_a_thousand_trials_are_a_small_picture(width: int) -> None:
    drawn = memory_front(many(1000), width, limit_bytes=85 * GB)
    assert drawn is not None
    assert len(drawn) < 40_000
