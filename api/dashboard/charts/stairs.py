"""Stairs: what is best up to each of many, and the line that holds it until something better comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["best_so_far", "staircase"]


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
