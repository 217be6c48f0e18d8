from __future__ import annotations

import pytest

from api.dashboard.charts.sweep.effects import Effect, effects
from tests.api.dashboard.charts.drawn import each, number, words

GAIN = Effect(name="recompute full → none", median=0.06, low=0.03, high=0.09, num_faster=9, num_pairs=9)
LOSS = Effect(name="cp 2 → 4", median=-0.05, low=-0.06, high=-0.03, num_faster=0, num_pairs=5)
UNCLEAR = Effect(name="pp 1 → 2", median=0.02, low=-0.01, high=0.03, num_faster=7, num_pairs=8)


def test_gains_are_green_losses_red_and_what_pairs_disagree_on_neither() -> None:
    drawn = effects([GAIN, LOSS, UNCLEAR], 700)
    assert drawn is not None
    assert [dot.attrib["class"] for dot in each(drawn, "m-dot")] == ["m-dot win", "m-dot bad", "m-dot"]


def test_each_change_says_of_how_many_pairs_it_was_right() -> None:
    drawn = effects([GAIN], 700)
    assert drawn is not None
    assert {"recompute full → none", "9 of 9 pairs", "0"} <= set(words(drawn))


def test_nothing_changed_is_on_the_axis_even_where_all_gained() -> None:
    drawn = effects([GAIN], 700)
    assert drawn is not None
    (zero,) = each(drawn, "axis")
    (dot,) = each(drawn, "m-dot")
    assert number(zero, "x1") < number(dot, "cx")


@pytest.mark.parametrize("width", [700, 350])
def test_a_long_name_leaves_half_of_the_picture_to_the_axis(width: int) -> None:
    long = Effect(name="tensor → pipeline " * 6, median=0.01, low=0.01, high=0.01, num_faster=1, num_pairs=1)
    drawn = effects([long], width)
    assert drawn is not None
    assert all(number(rule, "x1") >= width / 2 for rule in each(drawn, "axis"))


def test_without_pairs_there_is_no_picture() -> None:
    assert effects([], 700) is None
