"""Trend of a retune as an SVG picture: what the layout in use reached run by run, over the band of noise alone.

Places are in percent of the picture, which is as wide as the page lets it and keeps its height: text stays readable on
a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from api.dashboard.charts.drawing import decimals, round_step
from autotuner.search.upkeep.retune import TrendPoint

_FEWEST_SLOTS = 6
"""A few runs stand beside each other as those of many nights would, not far apart."""

_MOST_SLOTS = 90
"""Runs that the picture shows: a quarter of nights."""

_MANY = 30
_NUM_MARKS = 4
_MOST_LABELS = 6
_MARGIN = 0.08
"""Of the range, above and below."""

_UNITS = ((1e9, "Gtoken/s"), (1e6, "Mtoken/s"), (1e3, "ktoken/s"), (1.0, "token/s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMark:
    """A line of the grid; ``y`` in percent from above."""

    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendSlot:
    """A run's place; all in percent of the picture, ``y`` from above."""

    x: float
    """Where it begins."""
    width: float
    """How wide it is."""
    middle: float
    """Of it."""
    y: float
    """The mean of its measurements."""
    high: float
    """The fastest of them."""
    low: float
    """The slowest of them."""
    band: tuple[float, float] | None
    """Upper and lower end of the band in which noise alone lies; None without a baseline."""
    reference: float | None
    """What it was held to; None without a baseline."""
    label: str
    """Its day, or its time where all are of one day; empty where there is no room."""
    is_another: bool
    """The layout in use is not that of the run before."""
    point: TrendPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChart:
    """The picture."""

    slots: tuple[TrendSlot, ...]
    marks: tuple[RateMark, ...]
    unit: str
    """Of its marks."""
    is_cut: bool
    """Older runs have no room."""
    is_dense: bool
    """Many runs share the width, and are drawn small."""


def trend_chart(points: Sequence[TrendPoint]) -> TrendChart | None:
    """The picture of the newest runs; None where none measured anything.

    Args:
        points: The oldest first.
    """
    if not points:
        return None
    shown = points[-_MOST_SLOTS:]
    scale = _Scale.of(shown)
    width = 100 / max(len(shown), _FEWEST_SLOTS)
    labels = _labels(shown)
    layouts = [point.layout for point in shown]
    return TrendChart(
        slots=tuple(
            _slot(
                point, scale, number * width, width, labels[number], number > 0 and layouts[number - 1] != point.layout
            )
            for number, point in enumerate(shown)
        ),
        marks=scale.marks(),
        unit=scale.unit,
        is_cut=len(points) > len(shown),
        is_dense=len(shown) > _MANY,
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """Rates from the lowest to the highest mark."""

    first: int
    last: int
    step: float
    divisor: float
    unit: str

    @classmethod
    def of(cls, points: Sequence[TrendPoint]) -> _Scale:
        rates = [rate for one in points for rate in (one.lowest, one.highest, one.band_low, one.band_high) if rate]
        least, most = min(rates), max(rates)
        margin = _MARGIN * ((most - least) or most)
        step = round_step((most - least + 2 * margin) / _NUM_MARKS)
        divisor, unit = next((pair for pair in _UNITS if most >= pair[0]), _UNITS[-1])
        return cls(math.floor((least - margin) / step), math.ceil((most + margin) / step), step, divisor, unit)

    def y(self, rate: float) -> float:
        share = (rate / self.step - self.first) / (self.last - self.first)
        return round(100 * (1 - share), 2)

    def marks(self) -> tuple[RateMark, ...]:
        digits = decimals(self.step / self.divisor)
        rates = [number * self.step for number in range(self.first, self.last + 1)]
        return tuple(RateMark(y=self.y(rate), label=f"{rate / self.divisor:.{digits}f}") for rate in rates)


def _slot(point: TrendPoint, scale: _Scale, x: float, width: float, label: str, is_another: bool) -> TrendSlot:
    ends = None if point.band_low is None or point.band_high is None else (point.band_high, point.band_low)
    return TrendSlot(
        x=round(x, 3),
        width=round(width, 3),
        middle=round(x + width / 2, 3),
        y=scale.y(point.tokens_per_s),
        high=scale.y(point.highest),
        low=scale.y(point.lowest),
        band=None if ends is None else (scale.y(ends[0]), scale.y(ends[1])),
        reference=None if point.reference is None else scale.y(point.reference),
        label=label,
        is_another=is_another,
        point=point,
    )


def _labels(points: Sequence[TrendPoint]) -> list[str]:
    """The newest has one, and every so many before it."""
    every = math.ceil(len(points) / _MOST_LABELS)
    moments = [datetime.fromtimestamp(point.at, UTC) for point in points]
    is_one_day = len({moment.date() for moment in moments}) == 1
    words = [f"{moment:%H:%M}" if is_one_day else f"{moment.day} {moment:%b}" for moment in moments]
    newest = len(words) - 1
    return [word if (newest - number) % every == 0 else "" for number, word in enumerate(words)]
