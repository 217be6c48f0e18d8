"""Predicted against measured MFU as points of an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.charts.axis import round_step
from api.schemas import TrialView

__all__ = ["Mark", "Point", "Scatter", "scatter"]

SIZE = 100.0
"""Side of the plot in units of its view box."""

_NUM_MARKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A trial; ``x`` grows with the predicted, ``y`` shrinks with the measured MFU, as SVG counts downwards.

    Attributes:
        low: Where the 80 % interval of the prediction begins; ``x`` itself where it is unknown.
        high: Where it ends, cut off at the edge of the picture.
    """

    x: float
    y: float
    low: float
    high: float
    trial: TrialView


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line of the grid, the same on both axes; ``at`` counts from the origin."""

    at: float
    mfu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The picture: both axes have one scale, so a right prediction lies on the diagonal."""

    points: tuple[Point, ...]
    marks: tuple[Mark, ...]


def scatter(trials: Sequence[TrialView]) -> Scatter | None:
    """The picture of the trials that were measured; None when there are none."""
    pairs = [(t, t.predicted.mfu, t.measured.mfu) for t in trials if t.measured]
    pairs = [(t, x, y) for t, x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    if not pairs:
        return None
    step = round_step(max(max(x, y) for _, x, y in pairs) / _NUM_MARKS)
    scale = SIZE / (step * _NUM_MARKS)
    points = tuple(_point(t, x * scale, SIZE - y * scale) for t, x, y in pairs)
    marks = tuple(Mark(at=step * i * scale, mfu=step * i) for i in range(_NUM_MARKS + 1))
    return Scatter(points=points, marks=marks)


def _point(trial: TrialView, x: float, y: float) -> Point:
    factor = 1 + (trial.predicted.relative_error or 0.0)
    low, high = round(x / factor, 2), round(min(x * factor, SIZE), 2)
    return Point(x=round(x, 2), y=round(y, 2), low=low, high=high, trial=trial)
