"""Stairs: what is best up to each of many, and the line that holds it until something better comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


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
