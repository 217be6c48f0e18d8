"""A sparkline: how the best so far grew, for a cell of a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.stairs import best_so_far, staircase
from api.dashboard.charts.svg import cell, circle, path

_WIDTH, _HEIGHT = 96, 24
_MOST_STEPS = 48
"""More than that no eye tells apart at this width."""


def sparkline(values: Sequence[float | None]) -> Markup:
    """The best so far after each trial, in the order they ran; nothing where none had a result."""
    best = best_so_far(values)
    grown = [(number, value) for number, value in enumerate(best) if value is not None]
    if not grown:
        return Markup("")
    x = Scale(0, max(1, len(best) - 1), 3, _WIDTH - 5)
    y = Scale(grown[0][1], grown[-1][1], _HEIGHT - 4, 4)
    points = [(x(number), y(value)) for number, value in _steps(grown)]
    return cell(_WIDTH, _HEIGHT, [path(staircase(points), "m-step"), circle(*points[-1], 3, "m-dot win")])


def _steps(grown: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The first, those that rose, and the last; some of them where they are many."""
    rises = [point for before, point in pairwise(grown) if point[1] > before[1]]
    stride = -(-len(rises) // _MOST_STEPS) or 1
    return [grown[0], *rises[::stride], grown[-1]]
