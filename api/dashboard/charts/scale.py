"""Scales: from values to pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from api.dashboard.charts.axis import decimals, round_step


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from ``low`` .. ``high`` to pixels ``start`` .. ``end``; a range of nothing lies in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies, outside of the ends too."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        """Where a value lies, or the end nearest to it."""
        return self(min(max(value, self.low), self.high))

    def marks(self, most: int) -> tuple[float, ...]:
        """Round values between the ends, no more than that many."""
        if self.high == self.low:
            return (self.low,)
        step = round_step((self.high - self.low) / max(1, most - 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(round(index * step, decimals(step)) for index in range(first, last + 1))
