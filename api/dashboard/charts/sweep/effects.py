"""Charts of choices: gains of pairs that differ in one, and the share of all differences that each explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, circle, line, picture, rect, signed_percent, text

# What single choices did: the median and the range of what pairs of layouts gained that differ in nothing else.

_ROW = 32
_BELOW = 30
_ROOM_FOR_WORDS = 400
_FEWEST_PAIRS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one change gained; shares of the throughput before it, below 0 for a loss."""

    name: str
    """The change: ``recompute full → none``."""
    median: float
    low: float
    """What the pair that gained least gained."""
    high: float
    """What the pair that gained most gained."""
    num_faster: int
    num_pairs: int

    @property
    def is_clear(self) -> bool:
        """Whether all pairs agree, and are more than a chance."""
        return self.num_pairs >= _FEWEST_PAIRS and (self.low > 0 or self.high < 0)


def effects(rows: Sequence[Effect], width: int) -> Markup | None:
    """The picture, in the order given; None without a pair."""
    if not rows:
        return None
    height = _ROW * len(rows) + _BELOW + 4
    label = "Throughput gained by one change, from pairs of trials: median and range."
    return picture(width, height, _parts(rows, width, height), label)


def _parts(rows: Sequence[Effect], width: int, height: float) -> Iterator[Markup]:
    is_wide = width > _ROOM_FOR_WORDS
    left, right = _names_width(rows, width), 96 if is_wide else 46
    low, high = min(0.0, *(row.low for row in rows)), max(0.0, *(row.high for row in rows))
    margin = 0.06 * (high - low) or 0.01
    x = Scale(low - margin, high + margin, left, width - right)
    for mark in x.marks(6 if is_wide else 4):
        yield line(x(mark), 4, x(mark), height - _BELOW + 4, "axis" if mark == 0 else "rule")
        yield text(x(mark), height - 10, signed_percent(mark), anchor="middle")
    for number, row in enumerate(rows):
        yield from _row(row, x, 4 + _ROW * number + _ROW / 2, left)
        said = f"{row.num_faster} of {row.num_pairs}{' pairs' if is_wide else ''}"
        yield text(width, 4 + _ROW * number + _ROW / 2 + 4, said, anchor="end")


def _row(row: Effect, x: Scale, y: float, left: float) -> Iterator[Markup]:
    way = "" if not row.is_clear else " win" if row.low > 0 else " bad"
    yield text(left - 12, y + 4, row.name, "ink-text" if row.is_clear else None, "end")
    yield line(x(row.low), y, x(row.high), y, "m-line")
    yield circle(x(row.median), y, 4, f"m-dot{way}")


def _names_width(rows: Sequence[Effect], width: int) -> float:
    """Room for the longest name, and no more than half of the picture."""
    return min(6.4 * max(len(row.name) for row in rows) + 16, 0.5 * width)


# How much of the differences between trials each choice explains: from beyond all others to by itself.

_IMPORTANCE_ROW = 28
_MOST_NAME = 0.62
"""Share of the width that names may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A choice, with the share of all differences between layouts that it explains."""

    name: str
    least: float
    """Share of the differences that nothing else explains."""
    most: float
    """Share that it explains where nothing else is asked."""
    share: float
    """Between the two, by which choices are ordered."""


def importance(rows: Sequence[Explained], width: int) -> Markup | None:
    """The picture, in the order given; None without a choice."""
    if not rows:
        return None
    height = _IMPORTANCE_ROW * len(rows) + _BELOW + 4
    label = "Share of the differences in throughput that each choice explains."
    return picture(width, height, _importance_parts(rows, width, height), label)


def _importance_parts(rows: Sequence[Explained], width: int, height: float) -> Iterator[Markup]:
    left = min(6.6 * max(len(row.name) for row in rows) + 16, _MOST_NAME * width)
    x = Scale(0, max(0.1, *(row.most for row in rows)), left, width - 60)
    for mark in x.marks(5):
        yield line(x(mark), 4, x(mark), height - _BELOW + 4, "axis" if mark == 0 else "rule")
        yield text(x(mark), height - 10, f"{100 * mark:g} %", anchor="middle")
    for number, row in enumerate(rows):
        y = 4 + _IMPORTANCE_ROW * number + _IMPORTANCE_ROW / 2
        yield text(left - 12, y + 4, row.name, "ink-text", "end")
        yield rect(x(row.least), y - 4, x(row.most) - x(row.least), 8, "p-band", radius=2)
        yield circle(x(row.share), y, 4, "m-dot")
        yield text(width, y + 4, f"{100 * row.share:.0f} %", anchor="end")
