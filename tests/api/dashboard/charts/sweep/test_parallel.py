from __future__ import annotations

import pytest

from api.dashboard.charts.sweep.parallel import ChoiceAxis, parallel, parallel_axes
from api.dashboard.charts.sweep.points import TrialPoint
from tests.api.dashboard.charts.drawn import each, links, number, one, words
from tests.api.dashboard.charts.sweep.points import many, point

LOW, HIGH = point(0, 0.3, 40), point(1, 0.4, 60)


def axes_of(points: list[TrialPoint], label: str = "tp") -> tuple[ChoiceAxis, ...]:
    codes = tuple(index % 4 for index in range(len(points)))
    return (ChoiceAxis(name="tp", label=label, words=("1", "2", "4", "8"), codes=codes),)


def test_choices_come_first_then_memory_and_mfu() -> None:
    axes = parallel_axes([LOW, HIGH], axes_of([LOW, HIGH]))
    assert [axis.label for axis in axes] == ["tp", "memory, GB", "MFU, %"]


def test_the_best_line_is_painted_last_and_every_line_is_a_link() -> None:
    drawn = parallel([HIGH, LOW], parallel_axes([HIGH, LOW], axes_of([HIGH, LOW])))
    assert drawn is not None
    assert [link.attrib["data-trial"] for link in links(drawn)] == ["0", "1"]
    assert "best-line" in links(drawn)[1][1].attrib["class"]


def test_every_axis_tells_a_brush_its_scale() -> None:
    drawn = parallel([LOW, HIGH], parallel_axes([LOW, HIGH], axes_of([LOW, HIGH])))
    assert drawn is not None
    choice, _, mfu = each(drawn, "par-axis")
    assert choice.attrib["data-words"] == "1|2|4|8"
    assert number(choice, "data-high") == 3
    assert number(mfu, "data-low") < 30
    assert number(mfu, "data-high") > 40
    assert number(mfu, "data-top") < number(mfu, "data-bottom")


def test_a_long_name_takes_two_lines_and_no_more() -> None:
    axes = axes_of([LOW, HIGH], "fewer layers on the very last stage of all")
    drawn = parallel([LOW, HIGH], parallel_axes([LOW, HIGH], axes))
    assert drawn is not None
    assert {"fewer layers on", "the very last …"} <= set(words(drawn))


def test_one_trial_needs_no_picture() -> None:
    assert parallel([LOW], parallel_axes([LOW], axes_of([LOW]))) is None


@pytest.mark.parametrize(("count", "most_bytes"), [(100, 25_000), (1000, 60_000)])
def test_many_trials_share_paths_in_which_each_can_be_found(count: int, most_bytes: int) -> None:
    points = many(count)
    drawn = parallel(points, parallel_axes(points, axes_of(points)))
    assert drawn is not None
    assert len(drawn) < most_bytes
    sheets = [element for element in each(drawn, "par") if "data-trials" in element.attrib]
    assert sum(sheet.attrib["d"].count("M") for sheet in sheets) == count - 1
    assert one(drawn, "best-line") is not None
