from __future__ import annotations

from api.dashboard.charts.course_bars import course_bars
from api.examples.job_phases import phases_plan
from tests.api.dashboard.charts.drawn import each, words

PLAN = phases_plan()
PICTURE = course_bars([("best", PLAN.best), ("stays", PLAN.statics[0])])


def test_every_way_has_a_block_for_each_phase() -> None:
    per_size = 2 * len(PLAN.best.choices)
    assert len([*each(PICTURE, "forward pencilled"), *each(PICTURE, "weight pencilled")]) == 2 * per_size


def test_a_switch_is_hatched_where_a_layout_changes_and_nowhere_else() -> None:
    assert len(list(each(PICTURE, "hatch"))) == 2  # one, drawn for a desk and for a phone


def test_each_way_says_what_it_takes() -> None:
    assert {"best: 28.2 days", "stays: 30.8 days"} <= set(words(PICTURE))
