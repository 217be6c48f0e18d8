from __future__ import annotations

from dataclasses import replace

import pytest
from markupsafe import Markup

from api.dashboard.charts.course_bars import course_bars
from api.examples.job_phases import phases_plan
from tests.api.dashboard.charts.drawn import each, number, words

PLAN = phases_plan()
PICTURE = course_bars([("best", PLAN.best), ("stays", PLAN.statics[0])])


def test_every_way_has_a_block_for_each_phase() -> None:
    per_size = 2 * len(PLAN.best.choices)
    assert len([*each(PICTURE, "forward pencilled"), *each(PICTURE, "weight pencilled")]) == 2 * per_size


def test_a_switch_is_hatched_where_a_layout_changes_and_nowhere_else() -> None:
    assert len(list(each(PICTURE, "hatch"))) == 2  # one, drawn for a desk and for a phone


def test_each_way_says_what_it_takes() -> None:
    assert {"best: 28.2 days", "stays: 30.8 days"} <= set(words(PICTURE))


def test_a_switch_that_takes_long_lies_between_the_phases_and_covers_neither() -> None:
    first, *rest = PLAN.best.choices
    slow = replace(PLAN.best, choices=(first, replace(rest[0], switch_s=first.expected_s), *rest[1:]))
    wide = Markup(course_bars([("best", slow)]).split('<div class="hide-wide"')[0])
    hatch = next(one for one in each(wide, "idle") if number(one, "width") > 20)
    before = next(each(wide, "forward pencilled"))
    assert number(hatch, "x") == pytest.approx(number(before, "x") + number(before, "width"), abs=0.2)  # of rounding
    after = next(each(wide, "weight pencilled"))
    assert number(after, "x") == pytest.approx(number(hatch, "x") + number(hatch, "width"), abs=0.2)
