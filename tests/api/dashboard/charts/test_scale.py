from __future__ import annotations

from api.dashboard.charts.scale import Scale


def test_values_lie_between_the_ends_in_proportion() -> None:
    scale = Scale(0.2, 0.4, 10, 110)
    assert (scale(0.2), scale(0.4)) == (10, 110)
    assert round(scale(0.3), 6) == 60


def test_what_lies_beyond_is_held_to_the_end() -> None:
    assert Scale(0, 1, 0, 100).clamped(7) == 100


def test_marks_are_round_and_between_the_ends() -> None:
    assert Scale(0.23, 0.49, 0, 1).marks(6) == (0.3, 0.4)


def test_one_value_lies_in_the_middle() -> None:
    scale = Scale(3, 3, 0, 100)
    assert (scale(3), scale.marks(4)) == (50, (3,))
