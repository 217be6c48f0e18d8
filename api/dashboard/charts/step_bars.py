"""A step as bars of its parts, predicted above measured on one axis, with lines from part to part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, SecondsUnit, circle, for_both, hatched, line, picture, rect, text
from api.dashboard.charts.spread import Spread
from autotuner.core.units import format_seconds
from autotuner.search.explain.step_parts import PartKind, StepParts

_LETTER = 6.6
"""Pixels of a letter, about: what fits into a block."""

_ON: dict[PartKind, str] = {
    "forward": "on-forward",
    "backward": "on-backward",
    "weight": "on-backward",
    "recompute": "on-backward",
    "communication": "on-communication",
    "idle": "ink-text",
    "optimizer": "on-forward",
    "other": "on-backward",
}
"""Classes of words that can be read on a part in ink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBar:
    """One side of a step."""

    name: str
    """``predicted``, ``measured``, ``simulated``."""
    parts: Sequence[tuple[str, PartKind, float]]
    """Name, kind and seconds of every part in order, those of no time too, so that sides can be joined."""
    whole: Spread | None
    """The step time with its interval, which need not be the sum of the parts: 80 % where it is predicted, 95 % where
    it was measured. None where the sum is all there is."""
    is_predicted: bool

    @property
    def total_s(self) -> float:
        """Sum of the parts."""
        return sum(seconds for _, _, seconds in self.parts)


def step_bars(step: StepParts, *, predicted: Spread, reached: Spread | None, reached_name: str) -> Markup:
    """The sides of a step for a desk and for a phone.

    Args:
        step: Its parts.
        predicted: The predicted step time.
        reached: What the timed steps took, of which the divided one is another.
        reached_name: What that is called.
    """
    bars = [StepBar(name="predicted", parts=_side(step, measured=False), whole=predicted, is_predicted=True)]
    if step.measured_s is not None:
        parts = _side(step, measured=True)
        bars.append(StepBar(name=reached_name, parts=parts, whole=reached, is_predicted=False))
    return step_rows(bars)


def step_rows(bars: Sequence[StepBar], *, wide: int = 1296) -> Markup:
    """Any sides of one vocabulary, above each other, for a desk and for a phone."""
    return for_both(lambda width: _drawn(bars, width), wide)


def _side(step: StepParts, *, measured: bool) -> list[tuple[str, PartKind, float]]:
    return [(part.name, part.kind, (part.measured_s if measured else part.predicted_s) or 0.0) for part in step.parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Where things lie."""

    is_narrow: bool
    width: int
    thick: float
    apart: float
    height: float
    x: Scale
    unit: SecondsUnit

    @classmethod
    def of(cls, bars: Sequence[StepBar], width: int) -> Self:
        is_narrow = width < 500
        longest_s = max(bar.total_s for bar in bars)
        ends = [bar.whole.high for bar in bars if bar.whole]
        high = min(max((longest_s, *ends)), 1.5 * longest_s)
        left, right = (0.0, 8.0) if is_narrow else (84.0, 132.0)
        thick, apart = (34.0, 66.0) if is_narrow else (38.0, 74.0)
        return cls(
            is_narrow=is_narrow,
            width=width,
            thick=thick,
            apart=apart,
            height=22 + apart * (len(bars) - 1) + thick + 42,
            x=Scale(0.0, 1.02 * high, left, width - right),
            unit=SecondsUnit.of(longest_s),
        )

    def top(self, row: int) -> float:
        """Where the bar of a row begins."""
        return 22 + self.apart * row


def _drawn(bars: Sequence[StepBar], width: int) -> Markup:
    space = _Space.of(bars, width)
    totals = ", ".join(f"{bar.name} {format_seconds(bar.total_s)}" for bar in bars)
    return picture(width, space.height, _parts(bars, space), f"A step by part on one axis: {totals}")


def _parts(bars: Sequence[StepBar], space: _Space) -> Iterator[Markup]:
    yield from _axis(space)
    for row, bar in enumerate(bars):
        yield from _bar(bar, space.top(row), space)
    for row in range(len(bars) - 1):
        yield from _joined(bars[row], bars[row + 1], space, row)


def _axis(space: _Space) -> Iterator[Markup]:
    per_unit = space.unit.seconds
    in_units = Scale(0.0, space.x.high / per_unit, space.x.start, space.x.end)
    for mark in in_units.marks(4 if space.is_narrow else 7):
        at, label = in_units(mark), f"{mark:g} {space.unit.name}"
        yield line(at, 10, at, space.height - 26, "rule")
        yield text(at, space.height - 10, label, anchor="start" if space.is_narrow and not mark else "middle")


def _bar(bar: StepBar, y: float, space: _Space) -> Iterator[Markup]:
    yield from _head(bar, y, space)
    starts = [0.0, *accumulate(seconds for _, _, seconds in bar.parts)]
    for (name, kind, seconds), start_s in zip(bar.parts, starts, strict=False):
        if seconds > 0:
            yield from _block(bar, name, kind, start_s, seconds, y, space)
    if bar.whole is not None:
        yield from _whole(bar.whole, y, space, is_predicted=bar.is_predicted)


def _head(bar: StepBar, y: float, space: _Space) -> Iterator[Markup]:
    """Whose bar it is, and how long."""
    told, class_ = format_seconds(bar.total_s), None if bar.is_predicted else "strong"
    if space.is_narrow:
        yield text(0, y - 6, f"{bar.name} {told}", class_)
        return
    middle = y + space.thick / 2 + 4
    yield text(space.x.start - 12, middle, bar.name, class_, "end")
    yield text(space.x(bar.total_s) + 10, middle, told, f"halo {class_ or ''}".strip())


def _block(
    bar: StepBar, name: str, kind: PartKind, start_s: float, seconds: float, y: float, space: _Space
) -> Iterator[Markup]:
    x, width = space.x(start_s), space.x(seconds) - space.x(0.0)
    if kind == "idle":
        yield hatched(x, y, width, space.thick)
    else:
        class_ = f"{kind} pencilled" if bar.is_predicted else kind
        yield rect(x, y, width, space.thick, class_, title=f"{name}, {bar.name}: {format_seconds(seconds)}")
    if width > 2:
        yield line(x + width, y, x + width, y + space.thick, "gap")
    told = next((words for words in (f"{name} {format_seconds(seconds)}", name) if _fits(words, width)), "")
    if told:
        yield text(x + 8, y + space.thick / 2 + 4, told, "ink-text" if bar.is_predicted else _ON[kind])


def _fits(words: str, width: float) -> bool:
    return width > len(words) * _LETTER + 14


def _whole(whole: Spread, y: float, space: _Space, *, is_predicted: bool) -> Iterator[Markup]:
    """The step time with its interval: a band above what is predicted, a whisker below what was measured."""
    low, high, at = (space.x.clamped(value) for value in (whole.low, whole.high, whole.value))
    if is_predicted:
        if not space.is_narrow:
            yield rect(low, y - 11, high - low, 6, "p-band", radius=2)
            yield circle(at, y - 8, 3.4, "p-dot")
        return
    below = y + space.thick + 8
    yield line(low, below, high, below, "m-line")
    yield circle(at, below, 3.4, "m-dot")


def _joined(above: StepBar, below: StepBar, space: _Space, row: int) -> Iterator[Markup]:
    """Lines from the end of a part to its end on the other side; parts that nobody sees have none."""
    bottom, top = space.top(row) + space.thick, space.top(row + 1)
    ends = zip(*(accumulate(seconds for _, _, seconds in bar.parts) for bar in (above, below)), strict=False)
    least_s = 0.004 * space.x.high
    yield line(space.x(0.0), bottom, space.x(0.0), top, "axis")
    for (upper_s, lower_s), one, other in zip(ends, above.parts, below.parts, strict=False):
        if max(one[2], other[2]) > least_s:
            yield line(space.x(upper_s), bottom, space.x(lower_s), top, "axis")
