"""Steps that are not alike: behind every so many of them replicas average their parameters, and that takes longer.

A median of steps would pass over the average, so that its part is added to each step before anything is said of them.
A ``period`` is ``payload.steps_per_exchange`` of a layout; 1 where all steps are alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["averages_in", "levelled", "mean_over_period", "shows_average"]


def averages_in(step: int, period: int) -> bool:
    """Whether the step, counted from 0, ends with an average."""
    return (step + 1) % period == 0


def shows_average(steps: Sequence[int], period: int) -> bool:
    """Whether what these steps took tells what an average takes."""
    return any(averages_in(step, period) for step in steps)


def levelled(steps: Sequence[int], values: Sequence[float], period: int) -> list[float]:
    """The values of the steps without an average, each with its part of what one adds.

    Args:
        steps: Their numbers, counted from 0.
        values: Of each.
        period: Of the layout.
    """
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return list(values)
    share = (statistics.median(averaging) - statistics.median(plain)) / period
    return [value + share for value in plain]


def mean_over_period(steps: Sequence[int], values: Sequence[float], period: int) -> float:
    """The mean of a whole period, whose steps with and without an average were not seen as often as they occur."""
    plain, averaging = _parted(steps, values, period)
    if not (plain and averaging):
        return statistics.fmean(values)
    return ((period - 1) * statistics.fmean(plain) + statistics.fmean(averaging)) / period


def _parted(steps: Sequence[int], values: Sequence[float], period: int) -> tuple[list[float], list[float]]:
    """The values of steps without and with an average."""
    plain: list[float] = []
    averaging: list[float] = []
    for step, value in zip(steps, values, strict=True):
        (averaging if averages_in(step, period) else plain).append(value)
    return plain, averaging
