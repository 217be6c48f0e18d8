"""Trials as pictures take them, made up."""

from __future__ import annotations

from typing import Any

from api.dashboard.charts.spread import Spread
from api.dashboard.charts.sweep.points import TrialPoint

__all__ = ["GB", "many", "point"]

GB = 1e9


def point(number: int = 0, mfu: float | None = 0.4, gigabytes: float = 60.0, **changes: Any) -> TrialPoint:
    """A trial that reached that, or that ran out of memory."""
    given: dict[str, Any] = {
        "name": f"tp{number + 1}",
        "href": f"/trials/tr-{number}",
        "predicted": Spread.within_factor(mfu or 0.4, 0.1),
        "predicted_bytes": gigabytes * GB,
        "reached": None if mfu is None else Spread.within(mfu, 0.005),
        "peak_bytes": None if mfu is None else gigabytes * GB,
        "failure": "out of memory" if mfu is None else "",
        "is_out_of_memory": mfu is None,
    }
    return TrialPoint(number=number, **{**given, **changes})


def many(count: int) -> list[TrialPoint]:
    """So many trials with results, none of them like another."""
    return [
        point(number, 0.3 + 0.1 * (number * 37 % count) / count, 40 + 30 * number / count) for number in range(count)
    ]
