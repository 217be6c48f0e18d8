"""Figures of a column of a table: one unit and one number of digits for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from autotuner.search.results.trial_table import Unit
from autotuner.search.text.sentences import is_wide

_DIGITS = 3

_SCALES: dict[Unit, tuple[tuple[float, str], ...]] = {
    "share": ((0.01, "%"),),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "per_s": ((1e6, "M"), (1e3, "k"), (1.0, "")),
    "dollars": ((1.0, ""),),
    "kwh": ((1.0, "kWh"), (1e-3, "Wh")),
    "kg": ((1.0, "kg"), (1e-3, "g")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """How the figures of a column are written: in what, and with how many digits behind the point."""

    factor: float
    unit: str
    decimals: int

    @classmethod
    def of(cls, unit: Unit, values: Iterable[float | None]) -> Self:
        """The largest unit that the largest value has one of, and three digits of that value."""
        known = [abs(value) for value in values if value is not None and math.isfinite(value)]
        most = max(known, default=1.0)
        scales = _SCALES.get(unit, ((1.0, ""),))
        factor, sign = next(
            (scale for scale in scales if most >= scale[0]), scales[-1] if unit != "share" else scales[0]
        )
        return cls(factor=factor, unit=sign, decimals=_decimals(most / factor))

    def __call__(self, value: float | None) -> str:
        """The figure without its unit; a dash where it is not known."""
        if value is None or not math.isfinite(value):
            return "–"
        return f"{value / self.factor:,.{self.decimals}f}".replace("-", "−")

    def half(self, value: float | None) -> str:
        """Half the width of an interval: ``± 0.4``; empty where it is not known."""
        return "" if value is None or not math.isfinite(value) else f"± {self(value)}"

    def spread(self, value: float | None, half: float | None) -> str:
        """Return the interval of a value: ``± 0.4``, or its ends, ``11.4 to 68.4``, where its sides differ too much.

        Empty where either is not known. The ends are the value divided and multiplied by the same factor.
        """
        if value is None:
            return ""
        if half is None or not value > 0 or not is_wide(half / value):
            return self.half(half)
        ratio = 1 + half / value
        return f"{self(value / ratio)} to {self(value * ratio)}"


POINTS = Scaled(factor=0.01, unit="%", decimals=1)
"""Shares in points, with a tenth of one."""


def _decimals(most: float) -> int:
    """Digits behind the point that make three of the largest value; no more than four of a small one."""
    if most <= 0:
        return _DIGITS - 1
    return min(4, max(0, _DIGITS - 1 - math.floor(math.log10(most))))
