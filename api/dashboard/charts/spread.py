"""A value with the interval that it lies in, as pictures take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


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
