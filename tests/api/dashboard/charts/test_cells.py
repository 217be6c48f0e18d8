from __future__ import annotations

import pytest

from api.dashboard.charts.cells import MemoryAxis, RangeAxis, is_tight, memory_cell, range_cell, range_head
from api.dashboard.charts.spread import Spread
from tests.api.dashboard.charts.drawn import each, number, one, words

GB = 1e9
MEASURED = Spread.within(0.44, 0.01)
PREDICTED = Spread.within_factor(0.40, 0.1)
AXIS = RangeAxis.of([MEASURED, PREDICTED, Spread.within(0.30, 0.0)], best=0.44)


def test_every_row_has_the_same_rules_as_the_head_and_the_winners() -> None:
    head = range_head(AXIS)
    rows = [range_cell(AXIS, predicted=PREDICTED, reached=other) for other in (MEASURED, Spread.within(0.3, 0.0))]
    ticks = [number(tick, "x1") for tick in each(head, "tick")]
    assert len(ticks) >= 2
    assert all([number(rule, "x1") for rule in each(row, "rule")] == ticks for row in rows)
    assert len({number(one(row, "winner-rule"), "x1") for row in rows}) == 1


def test_marks_of_the_head_are_percents_told_apart() -> None:
    labels = words(range_head(RangeAxis.of([Spread.within(0.412, 0.001), Spread.within(0.416, 0.001)], best=0.416)))
    assert len(set(labels)) == len(labels) >= 2
    assert all(label.endswith(" %") for label in labels)


def test_only_the_winner_is_green_and_its_dot_lies_on_its_rule() -> None:
    winner = range_cell(AXIS, predicted=PREDICTED, reached=MEASURED)
    other = range_cell(AXIS, predicted=PREDICTED, reached=Spread.within(0.43, 0.01))
    assert number(one(winner, "m-dot win"), "cx") == number(one(winner, "winner-rule"), "x1")
    assert not list(each(other, "win"))


def test_a_layout_that_never_ran_has_band_and_ring_alone() -> None:
    drawn = range_cell(AXIS, predicted=PREDICTED, reached=None)
    assert one(drawn, "p-band") is not None
    assert not list(each(drawn, "m-dot"))


def test_a_band_that_reaches_far_is_cut_off_inside_the_cell() -> None:
    wide = Spread.within_factor(0.4, 9.0)
    axis = RangeAxis.of([MEASURED, wide], best=0.44)
    assert axis.low > 0.2
    band = one(range_cell(axis, predicted=wide, reached=None), "p-band")
    assert number(band, "x") >= 0
    assert number(band, "x") + number(band, "width") <= 160


def test_an_axis_of_nothing_and_one_of_a_single_value_can_be_drawn() -> None:
    assert words(range_head(RangeAxis.of([], best=None)))
    one_value = RangeAxis.of([Spread.within(0.4, None)], best=0.4)
    assert 0 < number(one(range_cell(one_value, predicted=None, reached=Spread.within(0.4, None)), "m-dot"), "cx") < 160


@pytest.mark.parametrize(("peak", "tight"), [(70 * GB, False), (82 * GB, True), (90 * GB, True)])
def test_memory_close_to_the_limit_or_past_it_is_tight(peak: float, tight: bool) -> None:
    axis = MemoryAxis(limit_bytes=85 * GB, most_bytes=90 * GB)
    drawn = memory_cell(axis, predicted_bytes=80 * GB, reached_bytes=peak)
    assert is_tight(axis, peak) is tight
    assert bool(list(each(drawn, "mem tight"))) is tight
    assert number(one(drawn, "track"), "width") == pytest.approx(number(one(drawn, "limit-tick"), "x1"), abs=0.1)


def test_memory_that_nobody_limits_has_no_limit_to_show() -> None:
    axis = MemoryAxis(limit_bytes=None, most_bytes=4 * GB)
    drawn = memory_cell(axis, predicted_bytes=4 * GB, reached_bytes=None)
    assert not list(each(drawn, "limit-tick"))
    assert one(drawn, "p-band") is not None


def test_the_memory_column_says_nothing_where_no_layout_uses_a_tenth_of_the_limit() -> None:
    assert not MemoryAxis(limit_bytes=64 * GB, most_bytes=1 * GB).says_something
    assert MemoryAxis(limit_bytes=64 * GB, most_bytes=7 * GB).says_something
