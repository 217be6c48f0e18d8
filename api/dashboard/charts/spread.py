"""Values as pictures take them: with the interval that each lies in, and the best up to each of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

# A value with the interval that it lies in, as pictures take it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A value and the ends of its interval; both are the value itself where none is known."""

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, half: float | None) -> Self:
        """As far on both sides: the 95 % interval of something measured."""
        return cls(value=value, low=value - (half or 0.0), high=value + (half or 0.0))

    @classmethod
    def within_factor(cls, value: float, relative_error: float | None) -> Self:
        """Off by a factor on both sides: the 80 % interval of something predicted."""
        factor = 1 + (relative_error or 0.0)
        return cls(value=value, low=value / factor, high=value * factor)


# Stairs: what is best up to each of many, and the line that holds it until something better comes.


def best_so_far(values: Iterable[float | None]) -> list[float | None]:
    """The highest value up to each; None until there is one."""
    best: float | None = None
    found: list[float | None] = []
    for value in values:
        if value is not None and (best is None or value > best):
            best = value
        found.append(best)
    return found


def staircase(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each height held until the next point."""
    out = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        out += [(x, before), (x, y)]
    return out


def turns(points: Sequence[tuple[float, float]], least: float = 0.5) -> list[tuple[float, float]]:
    """The first point, those that differ from the last one kept by more than half a pixel in height, and the last."""
    kept = list(points[:1])
    for point in points[1:]:
        if abs(point[1] - kept[-1][1]) > least:
            kept.append(point)
    return [*kept, *points[-1:]] if len(points) > 1 else kept
