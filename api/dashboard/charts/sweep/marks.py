"""Trials as the pictures of a sweep take them, mark them and label them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, circle, cross, element, text, written
from api.dashboard.charts.spread import Spread

# A trial, and a layout that never ran, as the pictures of a sweep take them.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPoint:
    """A trial that has ended."""

    number: int
    name: str
    """Its layout in short: ``tp4 pp2 dp8 mb1``."""
    href: str
    """Its page."""
    predicted: Spread
    """MFU with the 80 % interval."""
    predicted_bytes: float
    reached: Spread | None
    """MFU, measured, simulated or estimated, with its interval; None without a result."""
    peak_bytes: float | None
    """What the fullest rank had; None where nobody measured it."""
    failure: str = ""
    """Why it has no result, in words; empty where it has one."""
    is_out_of_memory: bool = False
    """That is why."""
    expected_gain: float | None = None
    """Share by which one more trial was expected to beat the best so far when this one was chosen; None where it was
    not recorded."""
    is_incumbent: bool = False
    """It is the layout that runs today."""

    @property
    def mfu(self) -> float | None:
        """What it reached."""
        return None if self.reached is None else self.reached.value

    @property
    def shown_bytes(self) -> float:
        """Its peak, or what was predicted where nobody measured it."""
        return self.predicted_bytes if self.peak_bytes is None else self.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPoint:
    """A layout that is only predicted."""

    peak_bytes: float
    mfu: float


def reached(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, Spread]]:
    """Those with a result, beside it."""
    return [(point, point.reached) for point in points if point.reached is not None]


def by_rank(points: Sequence[TrialPoint]) -> list[tuple[TrialPoint, Spread]]:
    """Those with a result, the best first; equal ones by number."""
    return sorted(reached(points), key=lambda pair: (-pair[1].value, pair[0].number))


# Marks of trials: links where they are few, one path where they are many.
#
# A thousand links would weigh more than the page and be a thousand stops of the Tab key; of many trials those that a
# reader looks for are links, the others one path, in which a script finds each by its place: ``data-trials`` lists
# their numbers in the order of the path.

MANY = 60
"""From so many on, trials that nothing singles out are one path."""

_DENSE = 300

At = tuple[TrialPoint, float, float]
"""A trial and its place."""


def linked(point: TrialPoint, drawn: Markup, said: str, *, is_stop: bool = False) -> Markup:
    """A mark that leads to its trial; only those that a reader looks for are stops of the Tab key."""
    return element(
        "a",
        element("title", f"{point.name}, trial {point.number}: {said}"),
        drawn,
        href=point.href,
        data_trial=str(point.number),
        tabindex=None if is_stop else "-1",
    )


def linked_dot(at: At, radius: float, class_: str, said: str, *, is_stop: bool = False) -> Markup:
    """A dot that leads to its trial."""
    point, x, y = at
    return linked(point, circle(x, y, radius, class_), said, is_stop=is_stop)


def scattered(places: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Dots as one path, whose round caps are the dots."""
    moves = "".join(f"M{written(x)} {written(y)}h0" for x, y in places)
    return element("path", d=moves, class_=class_) if moves else Markup("")


def cloud(places: Sequence[At], class_: str) -> Markup:
    """Dots of many trials as one path, with their numbers."""
    if not places:
        return Markup("")
    moves = "".join(f"M{written(x)} {written(y)}h0" for _, x, y in places)
    crowd = f"{class_} dense" if len(places) > _DENSE else class_
    return element("path", d=moves, class_=crowd, data_trials=listed(point.number for point, _, _ in places))


def crosses(places: Sequence[At]) -> Iterator[Markup]:
    """Where trials came to nothing: links, or one path of many."""
    if len(places) > MANY:
        strokes = "".join(f"M{written(x - 3)} {written(y - 3)}l6 6m-6 0l6-6" for _, x, y in places)
        yield element("path", d=strokes, class_="cross", data_trials=listed(point.number for point, _, _ in places))
    else:
        yield from (linked(point, cross(x, y), point.failure) for point, x, y in places)


def listed(numbers: Iterable[int]) -> str:
    """Numbers with rising neighbours drawn together: ``0-12 14 16-99``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# Direct labels of points, kept inside the plot and apart from each other.

_CHARACTER = 6.4
"""Pixels of a character at 12 px, in the widest of the fonts that pages ask for."""

_APART = 26
_ROW = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Words for a point at that place."""

    words: str
    x: float
    y: float
    class_: str
    is_below: bool = False
    """They stand below it, as lines lie above."""

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
    """Place the label to the left if it stays in the plot, else to the right, else nowhere."""
    if label.x - 8 - label.width >= frame.left:
        return label.x - 8, "end"
    if label.x + 8 + label.width <= frame.end:
        return label.x + 8, None
    return None
