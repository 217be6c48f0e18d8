"""How much of the differences between trials each choice explains: from beyond all others to by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import circle, line, picture, rect, text

_ROW = 28
_BELOW = 30
_MOST_NAME = 0.62
"""Share of the width that names may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A choice.

    Attributes:
        least: Share of the differences that nothing else explains.
        most: Share that it explains where nothing else is asked.
        share: Between the two, by which choices are ordered.
    """

    name: str
    least: float
    most: float
    share: float


def importance(rows: Sequence[Explained], width: int) -> Markup | None:
    """The picture, in the order given; None without a choice."""
    if not rows:
        return None
    height = _ROW * len(rows) + _BELOW + 4
    label = "Share of the differences in throughput that each choice explains."
    return picture(width, height, _parts(rows, width, height), label)


def _parts(rows: Sequence[Explained], width: int, height: float) -> Iterator[Markup]:
    left = min(6.6 * max(len(row.name) for row in rows) + 16, _MOST_NAME * width)
    x = Scale(0, max(0.1, *(row.most for row in rows)), left, width - 60)
    for mark in x.marks(5):
        yield line(x(mark), 4, x(mark), height - _BELOW + 4, "axis" if mark == 0 else "rule")
        yield text(x(mark), height - 10, f"{100 * mark:g} %", anchor="middle")
    for number, row in enumerate(rows):
        y = 4 + _ROW * number + _ROW / 2
        yield text(left - 12, y + 4, row.name, "ink-text", "end")
        yield rect(x(row.least), y - 4, x(row.most) - x(row.least), 8, "p-band", radius=2)
        yield circle(x(row.share), y, 4, "m-dot")
        yield text(width, y + 4, f"{100 * row.share:.0f} %", anchor="end")
