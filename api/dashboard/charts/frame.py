"""The frame of a plot: room for axes around it, rules through it, and no box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.axis import in_percent
from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import line, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture of that size, with margins for the words around its plot; all in pixels."""

    width: float
    height: float
    left: float = 34
    right: float = 14
    top: float = 30
    bottom: float = 40

    @property
    def end(self) -> float:
        """The plot's right edge."""
        return self.width - self.right

    @property
    def floor(self) -> float:
        """The plot's lower edge."""
        return self.height - self.bottom

    def across(self, low: float, high: float, inset: float = 0.0) -> Scale:
        """A scale from left to right."""
        return Scale(low, high, self.left + inset, self.end)

    def upward(self, low: float, high: float) -> Scale:
        """A scale from the floor up."""
        return Scale(low, high, self.floor, self.top)

    def share_rules(self, y: Scale, most: int = 7) -> Iterator[Markup]:
        """Rules across the plot with percents beside them, and no sign: the title says it."""
        marks = y.marks(most)
        for at, label in zip(marks, in_percent(marks), strict=True):
            yield line(self.left, y(at), self.end, y(at), "rule")
            yield text(self.left - 8, y(at) + 4, label, anchor="end")

    def ground(self, x: Scale, marks: Sequence[float], label: Callable[[float], str]) -> Iterator[Markup]:
        """The horizontal axis with its ticks."""
        yield line(self.left, self.floor, self.end, self.floor, "axis")
        for at in marks:
            yield line(x(at), self.floor, x(at), self.floor + 4, "tick")
            yield text(x(at), self.floor + 17, label(at), anchor="middle")

    def titles(self, upward: str, across: str) -> Iterator[Markup]:
        """What both axes count, with their units."""
        yield text(0, 12, upward)
        yield text((self.left + self.end) / 2, self.height - 4, across, anchor="middle")
