"""Ways through the phases of a job as bars on one axis of time: a block per phase, hatched where layouts change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import for_both, hatched, line, picture, rect, text
from autotuner.core.units import format_long_duration
from autotuner.search.job_phases.plan import Course

_LETTER = 6.6
"""Pixels of a letter, about: what fits into a block."""

_WIDE = 896
"""Pixels of a picture beside the inputs."""

_THICK, _APART, _TOP, _BOTTOM = 34.0, 66.0, 22.0, 34.0
_LEAST_SWITCH = 5.0
"""Pixels of a switch, which seconds beside weeks would hide."""

_KINDS = ("forward", "weight", "optimizer", "communication")
"""Fills of the phases, by turns: the palette of the parts of a step, which tells neighbours apart in both schemes."""

_UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def course_bars(courses: Sequence[tuple[str, Course]]) -> Markup:
    """Named ways above each other, for a desk and for a phone."""
    return for_both(lambda width: _drawn(courses, width), _WIDE)


def _drawn(courses: Sequence[tuple[str, Course]], width: int) -> Markup:
    longest_s = max(course.total_s for _, course in courses)
    x = Scale(0.0, 1.02 * longest_s, 0.0, width - 8.0)
    height = _TOP + _APART * (len(courses) - 1) + _THICK + _BOTTOM
    totals = ", ".join(f"{name} {format_long_duration(course.total_s)}" for name, course in courses)
    return picture(width, height, _parts(courses, x, height), f"Ways through all phases on one axis of time: {totals}")


def _parts(courses: Sequence[tuple[str, Course]], x: Scale, height: float) -> Iterator[Markup]:
    yield from _axis(x, height)
    ends = []
    for row, (name, course) in enumerate(courses):
        y = _TOP + _APART * row
        told = f"{name}: {format_long_duration(course.total_s)}"
        yield text(0, y - 6, _cut(told, x.end), "halo" if row else "halo strong")
        yield from _bar(course, y, x)
        ends.append(_phase_ends(course))
    for row, (above, below) in enumerate(pairwise(ends)):
        y = _TOP + _APART * row + _THICK
        for left_s, right_s in zip(above, below, strict=True):
            yield line(x(left_s), y, x(right_s), y + _APART - _THICK, "rule")


def _axis(x: Scale, height: float) -> Iterator[Markup]:
    unit_s, unit = next((one for one in _UNITS if x.high >= 2 * one[0]), _UNITS[-1])
    in_units = Scale(0.0, x.high / unit_s, x.start, x.end)
    marks = in_units.marks(4 if x.end < 500 else 7)
    for mark in marks:
        yield line(in_units(mark), 10, in_units(mark), height - 22, "rule")
        yield text(in_units(mark), height - 6, f"{mark:g} {unit}" if mark else "0", anchor="middle" if mark else None)


def _bar(course: Course, y: float, x: Scale) -> Iterator[Markup]:
    at_s = 0.0
    for number, choice in enumerate(course.choices):
        begins = x(at_s + choice.switch_s)
        width = x(at_s + choice.switch_s + choice.expected_s) - begins
        title = f"{choice.phase}: {choice.label}, {format_long_duration(choice.expected_s)}"
        yield rect(begins, y, width, _THICK, f"{_KINDS[number % len(_KINDS)]} pencilled", title=title)
        if choice.switch_s:
            middle, wide = (x(at_s) + begins) / 2, max(_LEAST_SWITCH, begins - x(at_s))
            yield hatched(middle - wide / 2, y - 3, wide, _THICK + 6)
        told = next((one for one in (f"{choice.phase}: {choice.label}", choice.phase) if _fits(one, width)), "")
        if told:
            yield text(begins + 8, y + _THICK / 2 + 4, told, "ink-text")
        at_s += choice.switch_s + choice.expected_s


def _phase_ends(course: Course) -> list[float]:
    at_s, ends = 0.0, []
    for choice in course.choices:
        at_s += choice.switch_s + choice.expected_s
        ends.append(at_s)
    return ends


def _fits(words: str, width: float) -> bool:
    return width > len(words) * _LETTER + 14


def _cut(words: str, width: float) -> str:
    most = int(width / _LETTER)
    return words if len(words) <= most else f"{words[: most - 1]}…"
