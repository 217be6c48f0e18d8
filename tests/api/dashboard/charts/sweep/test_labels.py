from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from api.dashboard.charts.frame import Frame
from api.dashboard.charts.sweep.labels import Label, placed
from tests.api.dashboard.charts.drawn import number, texts

FRAME = Frame(width=700, height=330)


def label(x: float, y: float = 100.0) -> Label:
    return Label(words="tp4 pp2 dp2", x=x, y=y, class_="halo")


def test_a_label_stands_above_its_point_to_the_left_where_there_is_room() -> None:
    left, right = (texts(Markup("").join(placed([label(x)], FRAME, 4)))[0] for x in (300.0, 40.0))
    assert (left.get("text-anchor"), number(left, "y")) == ("end", 92)
    assert (right.get("text-anchor"), number(right, "y")) == (None, 92)


def test_on_a_front_it_stands_where_no_stairs_are() -> None:
    inside, at_end = (texts(Markup("").join(placed([label(x)], FRAME, 4, is_front=True)))[0] for x in (300.0, 680.0))
    assert (inside.get("text-anchor"), number(inside, "y")) == (None, 92)
    assert at_end.get("text-anchor") == "end"
    assert number(at_end, "y") > 100


def test_a_label_of_a_point_under_lines_stands_below_it() -> None:
    (below,) = texts(Markup("").join(placed([replace(label(300.0), is_below=True)], FRAME, 4, is_front=True)))
    assert number(below, "y") > 100
