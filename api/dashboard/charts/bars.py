"""Bars on one axis: layers of communication by what each gives, and ways through the phases of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, for_both, hatched, line, picture, rect, signed_percent, text
from autotuner.core.units import format_long_duration
from autotuner.search.explain.layers import LayerGain, LayerReport
from autotuner.search.planning.phases import Course

# Layers of communication: what the best reaches as one layer after the other is searched, and what each gives.

_ROW, _THICK, _TOP, _FOOT = 30.0, 17.0, 6.0, 40.0
_LEFT, _RIGHT = 118.0, 64.0
_FULL = 100
"""Units of the axis: the best of strategies alone, whatever is maximised."""


def layer_bars(report: LayerReport, *, is_measured: bool = False, wide: int = 896) -> Markup:
    """A bar for each layer, with what it adds to the one before at its end, for a desk and for a phone.

    Args:
        report: Of at least one layer.
        is_measured: Bars are ink; else pencil.
        wide: Pixels on a desk.
    """
    height = _TOP + _ROW * len(report.gains) + _FOOT
    label = "What the best layout reaches. " + "; ".join(gain.sentence for gain in report.gains)
    look = "mem" if is_measured else "p-band"
    return for_both(lambda width: picture(width, height, _rows(report.gains, look, width, height), label), wide)


def _rows(gains: Sequence[LayerGain], look: str, width: int, height: float) -> Iterator[Markup]:
    first = gains[0].value
    x = Scale(0, max(_FULL * gain.value / first for gain in gains), _LEFT, width - _RIGHT)
    floor = height - _FOOT
    for mark in x.marks(4 if width < 500 else 8):
        yield line(x(mark), _TOP, x(mark), floor + 4, "rule")
        yield text(x(mark), floor + 17, f"{mark:g}", anchor="middle")
    yield text((_LEFT + width - _RIGHT) / 2, height - 4, "% of what strategies alone reach", anchor="middle")
    before = 0.0
    for number, gain in enumerate(gains):
        reached = _FULL * gain.value / first
        yield from _row(gain, look, (before if number else reached, reached), x, _TOP + _ROW * number)
        before = reached


def _row(gain: LayerGain, look: str, ends: tuple[float, float], x: Scale, top: float) -> Iterator[Markup]:
    y, (before, reached) = top + (_ROW - _THICK) / 2, ends
    yield text(x(0) - 8, y + _THICK - 4, str(gain.layer), anchor="end")
    yield rect(x(0), y, x(before) - x(0), _THICK, look, title=gain.sentence)
    if gain.change and reached > before:
        yield rect(x(before), y, x(reached) - x(before), _THICK, "gain", title=gain.sentence)
        yield text(x(reached) + 6, y + _THICK - 4, signed_percent(gain.gain), "bold")


# Ways through the phases of a job as bars on one axis of time: a block per phase, hatched where layouts change.

_LETTER = 6.6
"""Pixels of a letter, about: what fits into a block."""

_WIDE = 896
"""Pixels of a picture beside the inputs."""

_COURSE_THICK, _APART, _COURSE_TOP, _BOTTOM = 34.0, 66.0, 22.0, 34.0
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
    height = _COURSE_TOP + _APART * (len(courses) - 1) + _COURSE_THICK + _BOTTOM
    totals = ", ".join(f"{name} {format_long_duration(course.total_s)}" for name, course in courses)
    return picture(width, height, _parts(courses, x, height), f"Ways through all phases on one axis of time: {totals}")


def _parts(courses: Sequence[tuple[str, Course]], x: Scale, height: float) -> Iterator[Markup]:
    yield from _axis(x, height)
    ends = []
    for row, (name, course) in enumerate(courses):
        y = _COURSE_TOP + _APART * row
        told = f"{name}: {format_long_duration(course.total_s)}"
        yield text(0, y - 6, _cut(told, x.end), "halo" if row else "halo strong")
        yield from _bar(course, y, x)
        ends.append(_phase_ends(course))
    for row, (above, below) in enumerate(pairwise(ends)):
        y = _COURSE_TOP + _APART * row + _COURSE_THICK
        for left_s, right_s in zip(above, below, strict=True):
            yield line(x(left_s), y, x(right_s), y + _APART - _COURSE_THICK, "rule")


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
        yield rect(begins, y, width, _COURSE_THICK, f"{_KINDS[number % len(_KINDS)]} pencilled", title=title)
        if choice.switch_s:
            middle, wide = (x(at_s) + begins) / 2, max(_LEAST_SWITCH, begins - x(at_s))
            yield hatched(middle - wide / 2, y - 3, wide, _COURSE_THICK + 6)
        told = next((one for one in (f"{choice.phase}: {choice.label}", choice.phase) if _fits(one, width)), "")
        if told:
            yield text(begins + 8, y + _COURSE_THICK / 2 + 4, told, "ink-text")
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
