"""Marks of trials: links where they are few, one path where they are many.

A thousand links would weigh more than the page and be a thousand stops of the Tab key; of many trials those that a
reader looks for are links, the others one path, in which a script finds each by its place: ``data-trials`` lists their
numbers in the order of the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.svg import circle, cross, element, written
from api.dashboard.charts.sweep.points import TrialPoint

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
