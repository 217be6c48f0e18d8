from __future__ import annotations

from api.dashboard.charts.sweep.marks import cloud, crosses, listed
from tests.api.dashboard.charts.drawn import each, one
from tests.api.dashboard.charts.sweep.points import point


def test_neighbouring_numbers_are_drawn_together() -> None:
    assert listed([0, 1, 2, 4, 7, 8]) == "0-2 4 7-8"
    assert listed([]) == ""


def test_a_path_of_many_lists_its_trials_in_its_own_order() -> None:
    drawn = cloud([(point(3), 1, 2), (point(5), 3, 4)], "m-cloud")
    assert one(drawn, "m-cloud").attrib["d"] == "M1 2h0M3 4h0"
    assert one(drawn, "m-cloud").attrib["data-trials"] == "3 5"
    assert cloud([], "m-cloud") == ""


def test_few_failures_are_links_and_many_one_path() -> None:
    few = crosses([(point(number, None), number, 0) for number in range(3)])
    many = crosses([(point(number, None), number, 0) for number in range(300)])
    assert len(list(few)) == 3
    assert [element.attrib["data-trials"] for drawn in many for element in each(drawn, "cross")] == ["0-299"]
