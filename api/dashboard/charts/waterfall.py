"""A waterfall: what changes a step from one layout to another, part by part, each beginning where the last ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, circle, for_both, line, picture, rect, text
from autotuner.core.units import format_seconds

_ROW = 26
_THICK = 15
_TOP = 10
_FOOT = 26
_PER_LETTER = 6.4
"""Pixels of a letter in the small type of pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """One part that changes."""

    name: str
    seconds: float
    """By how much; below 0: it takes less."""
    is_worth_saying: bool = True
    """It stands out; else its words are quiet."""


def waterfall(begins: tuple[str, float], falls: Sequence[Fall], ends: tuple[str, float], *, wide: int = 896) -> Markup:
    """The picture for a desk and for a phone.

    Args:
        begins: Name and step time that it begins at.
        falls: In the order that they are drawn.
        ends: Name and step time that it ends at, the sum of all.
        wide: Pixels on a desk.
    """
    return for_both(lambda width: _drawn(begins, falls, ends, width), wide)


def _drawn(begins: tuple[str, float], falls: Sequence[Fall], ends: tuple[str, float], width: int) -> Markup:
    space = _Space.of(begins, falls, width)
    label = f"From {begins[0]}, {format_seconds(begins[1])}, to {ends[0]}, {format_seconds(ends[1])}: " + "; ".join(
        f"{fall.name} {signed_seconds(fall.seconds)}" for fall in falls
    )
    return picture(width, space.height, _parts(begins, falls, ends, space), label)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Where things lie."""

    left: float
    height: float
    x: Scale
    num_marks: int

    @classmethod
    def of(cls, begins: tuple[str, float], falls: Sequence[Fall], width: int) -> Self:
        levels = [*accumulate((fall.seconds for fall in falls), initial=begins[1])]
        low, high = min(levels), max(levels)
        margin = 0.08 * (high - low) or 0.05 * high
        longest = max(len(name) for name in (begins[0], *(fall.name for fall in falls)))
        left = min(12 + _PER_LETTER * longest, 0.42 * width)
        x = Scale(max(0.0, low - margin), high + margin, left, width - (64 if width < 500 else 84))
        return cls(left=left, height=_TOP + _ROW * (len(falls) + 2) + _FOOT, x=x, num_marks=4 if width < 500 else 7)


def _parts(
    begins: tuple[str, float], falls: Sequence[Fall], ends: tuple[str, float], space: _Space
) -> Iterator[Markup]:
    floor = space.height - _FOOT
    for mark in space.x.marks(space.num_marks):
        yield line(space.x(mark), _TOP, space.x(mark), floor, "rule")
        yield text(space.x(mark), floor + 16, format_seconds(mark), anchor="middle")
    yield from _end(begins, _TOP, space, "m-dot", "strong")
    level = begins[1]
    for row, fall in enumerate(falls, 1):
        yield from _fall(fall, level, _TOP + _ROW * row, space)
        level += fall.seconds
    is_faster = ends[1] < begins[1]
    last = _TOP + _ROW * (len(falls) + 1)
    yield line(space.x(level), last - (_ROW - _THICK) / 2, space.x(level), last + _ROW / 2, "rule")
    yield from _end(ends, last, space, "m-dot win" if is_faster else "m-dot", "win-text" if is_faster else "strong")


def _end(end: tuple[str, float], y: float, space: _Space, dot: str, words: str) -> Iterator[Markup]:
    middle, at = y + _ROW / 2, space.x(end[1])
    yield text(space.left - 10, middle + 4, end[0], "strong", "end")
    yield circle(at, middle, 3.5, dot)
    yield text(at + 9, middle + 4, format_seconds(end[1]), f"{words} halo")


def _fall(fall: Fall, level: float, y: float, space: _Space) -> Iterator[Markup]:
    start, end = sorted((space.x(level), space.x(level + fall.seconds)))
    top, middle = y + (_ROW - _THICK) / 2, y + _ROW / 2
    yield text(space.left - 10, middle + 4, fall.name, "ink-text" if fall.is_worth_saying else None, "end")
    at = space.x(level)
    yield line(at, top - (_ROW - _THICK), at, top, "axis")
    yield rect(start, top, max(1.0, end - start), _THICK, "gain" if fall.seconds < 0 else "loss")
    yield text(end + 7, middle + 4, signed_seconds(fall.seconds), f"{'ink-text' if fall.is_worth_saying else ''} halo")


def signed_seconds(seconds: float) -> str:
    """``−15.7 s``, ``+230 ms``."""
    return f"{'−' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"
