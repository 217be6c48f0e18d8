from __future__ import annotations

from api.dashboard.charts.sparkline import sparkline
from api.dashboard.charts.stairs import best_so_far, staircase
from tests.api.dashboard.charts.drawn import number, one


def test_the_best_so_far_never_falls_and_is_unknown_before_the_first_result() -> None:
    assert best_so_far([None, 0.3, 0.2, None, 0.4]) == [None, 0.3, 0.3, 0.3, 0.4]


def test_a_staircase_holds_each_height_until_the_next_point() -> None:
    assert staircase([(0, 1), (1, 2), (3, 2)]) == [(0, 1), (1, 1), (1, 2), (3, 2), (3, 2)]
    assert staircase([]) == []


def test_a_sparkline_ends_at_the_best_on_the_right() -> None:
    dot = one(sparkline([0.3, None, 0.4, 0.35]), "m-dot win")
    assert (number(dot, "cx"), number(dot, "cy")) == (91, 4)


def test_without_a_result_there_is_no_sparkline() -> None:
    assert sparkline([None, None]) == sparkline([]) == ""


def test_a_thousand_trials_make_a_small_sparkline() -> None:
    assert len(sparkline([number / 1000 for number in range(1000)])) < 2000
