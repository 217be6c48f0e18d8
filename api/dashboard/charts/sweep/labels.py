"""Direct labels of points, kept inside the plot and apart from each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.frame import Frame
from api.dashboard.charts.svg import text

_CHARACTER = 6.4
"""Pixels of a character at 12 px, in the widest of the fonts that pages ask for."""

_APART = 26
_ROW = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Words for a point at that place.

    Attributes:
        is_below: They stand below it, as lines lie above.
    """

    words: str
    x: float
    y: float
    class_: str
    is_below: bool = False

    @property
    def width(self) -> float:
        """About as many pixels."""
        return _CHARACTER * len(self.words)


def placed(labels: Sequence[Label], frame: Frame, most: int, *, is_front: bool = False) -> Iterator[Markup]:
    """The first ones that have room, each beside its point, above it to the left or to the right.

    Args:
        labels: In the order in which they count.
        frame: Of the picture.
        most: Labels that are shown.
        is_front: Nothing lies above the points to their right, and stairs above them to their left: labels stand
            there to the right, or below to the left.
    """
    heights: list[float] = []
    said: set[str] = set()
    for label in labels:
        if len(heights) == most:
            return
        if label.words in said or any(abs(label.y - other) < _APART for other in heights):
            continue
        place = _place_of_front(label, frame) if is_front else _place(label, frame)
        if place is None:
            continue
        heights.append(label.y)
        said.add(label.words)
        x, anchor = place
        y = label.y + _ROW + 2 if label.is_below or (is_front and anchor) else label.y - 8
        yield text(x, max(y, frame.top - _ROW + 4), label.words, label.class_, anchor)


def _place_of_front(label: Label, frame: Frame) -> tuple[float, str | None] | None:
    """To the right where it does not leave the plot, else to the left, else nowhere."""
    if label.x + 8 + label.width <= frame.end:
        return label.x + 8, None
    return _place(label, frame)


def _place(label: Label, frame: Frame) -> tuple[float, str | None] | None:
    """To the left where it does not leave the plot, else to the right, else nowhere."""
    if label.x - 8 - label.width >= frame.left:
        return label.x - 8, "end"
    if label.x + 8 + label.width <= frame.end:
        return label.x + 8, None
    return None
