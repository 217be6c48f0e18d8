"""Pictures in the cells of a table, whose numbers stand beside them; and how the best so far grew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from markupsafe import Markup

from autotuner.report.cells import silent
from autotuner.report.charts import Axis, Spread, stairs
from autotuner.report.drawing import Scale, circle, line, path, rect, text

# Pictures in the cells of a table, a column of which shares one axis; the numbers stand in the cells beside them.

ROW = 36
"""Pixels of a row's height (``--row``); rules reach beyond, to join in rows of several lines, which cut them off."""

_RANGE_WIDTH = 160
_MEMORY_WIDTH = 84
_EDGE = 5
_BEYOND = 1.5
"""A band that reaches further than this factor past all values is cut off: it would squeeze what was measured."""

_MOST_MARKS = 5
_LABEL = 36
_TIGHT = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAxis:
    """The MFU axis of a column, with the best of the whole ranking, whatever page of it is shown."""

    low: float
    high: float
    best: float | None

    @classmethod
    def of(cls, values: Iterable[Spread], best: float | None) -> Self:
        """Room for all of these, predicted and measured, and for the best; 0 to 1 of nothing."""
        shown = [*values, *([Spread.within(best, None)] if best is not None else [])]
        if not shown:
            return cls(low=0.0, high=1.0, best=None)
        centres = [one.value for one in shown]
        low = max(min(one.low for one in shown), min(centres) / _BEYOND)
        high = min(max(one.high for one in shown), max(centres) * _BEYOND)
        margin = 0.03 * (high - low) or 0.05 * high
        return cls(low=max(0.0, low - margin), high=high + margin, best=best)

    @property
    def scale(self) -> Scale:
        """From shares to pixels of the cell."""
        axis = Axis(title="", unit="share", low=self.low, high=self.high)
        return Scale(axis, _EDGE, _RANGE_WIDTH - _EDGE)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Where rules run through all rows, with what is said of them in the head."""
        return self.scale.ticks(_MOST_MARKS)


def range_head(axis: RangeAxis) -> Markup:
    """The marks of the axis, for the head of the column."""
    x = axis.scale
    parts = [line(x(at), 15, x(at), 20, "tick") for at, _ in axis.ticks]
    parts += [text(x(at), 11, f"{label} %", anchor="middle") for at, label in axis.ticks if _has_room(x(at))]
    return silent(_RANGE_WIDTH, 20, parts)


def _has_room(x: float) -> bool:
    """Whether a label there stays inside the cell."""
    return _LABEL / 2 <= x <= _RANGE_WIDTH - _LABEL / 2


def range_cell(axis: RangeAxis, *, predicted: Spread | None, reached: Spread | None) -> Markup:
    """The prediction as a band with a ring, what was reached as a dot with its interval, over the winner's rule.

    Args:
        axis: Of the column.
        predicted: Pencil; None where the cell shows a measurement alone.
        reached: Ink: measured, simulated or estimated; None where nothing ran.
    """
    return silent(_RANGE_WIDTH, ROW, _range_parts(axis, predicted, reached))


def _range_parts(axis: RangeAxis, predicted: Spread | None, reached: Spread | None) -> Iterator[Markup]:
    x, middle = axis.scale, ROW / 2
    yield from (line(x(at), -ROW, x(at), 2 * ROW, "rule") for at, _ in axis.ticks)
    if axis.best is not None:
        yield line(x(axis.best), -ROW, x(axis.best), 2 * ROW, "winner-rule")
    if predicted is not None:
        left, right = x.clamped(predicted.low), x.clamped(predicted.high)
        yield rect(left, middle - 4, right - left, 8, "p-band", radius=2)
        yield circle(x.clamped(predicted.value), middle, 3.6, "p-dot")
    if reached is not None:
        win = " win" if reached.value == axis.best else ""
        yield line(x.clamped(reached.low), middle, x.clamped(reached.high), middle, f"m-line{win}")
        yield circle(x.clamped(reached.value), middle, 4.2, f"m-dot{win}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAxis:
    """The memory axis of a column: from nothing to past the limit, or to the most needed where no limit is known."""

    limit_bytes: float | None
    most_bytes: float

    @property
    def scale(self) -> Scale:
        """From bytes to pixels of the cell; what is far beyond the limit lies at the edge."""
        high = self.limit_bytes * 1.12 if self.limit_bytes else self.most_bytes * 1.06 or 1.0
        return Scale(Axis(title="", low=0.0, high=high), 0, _MEMORY_WIDTH)

    @property
    def says_something(self) -> bool:
        """Whether any layout uses a tenth of the limit; where none does, the column says nothing."""
        return not self.limit_bytes or self.most_bytes >= 0.1 * self.limit_bytes


def memory_cell(axis: MemoryAxis, *, predicted_bytes: float | None, reached_bytes: float | None) -> Markup:
    """The peak as a bar on its track, the prediction as a ring, the limit as a red rule."""
    return silent(_MEMORY_WIDTH, ROW, _memory_parts(axis, predicted_bytes, reached_bytes))


def is_tight(axis: MemoryAxis, num_bytes: float | None) -> bool:
    """Whether so much is close to the limit, or past it."""
    return bool(axis.limit_bytes and num_bytes and num_bytes > _TIGHT * axis.limit_bytes)


def _memory_parts(axis: MemoryAxis, predicted: float | None, reached: float | None) -> Iterator[Markup]:
    x, middle = axis.scale, ROW / 2
    yield rect(0, middle - 4, x(axis.limit_bytes or axis.most_bytes), 8, "track", radius=1)
    if reached is not None:
        tight = " tight" if is_tight(axis, reached) else ""
        yield rect(0, middle - 4, x.clamped(reached), 8, f"mem{tight}", radius=1)
    elif predicted is not None:
        yield rect(0, middle - 4, x.clamped(predicted), 8, "p-band", radius=1)
    if predicted is not None:
        yield circle(min(x.clamped(predicted), _MEMORY_WIDTH - 4.0), middle, 3.2, "p-dot")
    if axis.limit_bytes:
        at = x(axis.limit_bytes)
        yield line(at, middle - 8, at, middle + 8, "limit-tick")


# A sparkline: how the best so far grew, for a cell of a list.

_WIDTH, _HEIGHT = 96, 24
_MOST_STEPS = 48
"""More than that no eye tells apart at this width."""


def sparkline(values: Sequence[float | None]) -> Markup:
    """The best so far after each trial, in the order they ran; nothing where none had a result."""
    grown = list(_best_so_far(values))
    if not grown:
        return Markup("")
    x = Scale(Axis(title="", low=0.0, high=max(1, len(values) - 1)), 3, _WIDTH - 5)
    y = Scale(Axis(title="", low=grown[0][1], high=grown[-1][1]), _HEIGHT - 4, 4)
    points = [(x(number), y(value)) for number, value in _steps(grown)]
    return silent(_WIDTH, _HEIGHT, [path(stairs(points), "m-step"), circle(*points[-1], 3, "m-dot win")])


def _best_so_far(values: Sequence[float | None]) -> Iterator[tuple[int, float]]:
    """The highest value up to each place, from the first that there is on."""
    best: float | None = None
    for number, value in enumerate(values):
        if value is not None and (best is None or value > best):
            best = value
        if best is not None:
            yield number, best


def _steps(grown: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The first, those that rose, and the last; some of them where they are many."""
    rises = [point for before, point in pairwise(grown) if point[1] > before[1]]
    stride = -(-len(rises) // _MOST_STEPS) or 1
    return [grown[0], *rises[::stride], grown[-1]]
