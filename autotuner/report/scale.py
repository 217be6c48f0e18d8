"""Numbers of one column, written with the same unit and the same number of digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "share": ((0.01, "%"),),
    "signed_share": ((0.01, "%"),),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "tokens/s": ((1e6, "Mtokens/s"), (1e3, "ktokens/s"), (1.0, "tokens/s")),
    "kwh": ((1.0, "kWh"), (1e-3, "Wh")),
    "kg": ((1.0, "kg"), (1e-3, "g")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The unit and the number of digits with which a table writes all numbers of one column."""

    factor: float
    """Value of one unit, in the base unit."""
    unit: str
    """Name of the unit for the head of the column: ``ms``."""
    decimals: int
    """Number of digits after the decimal point."""

    @classmethod
    def around(cls, unit: str, values: Iterable[float | None], *, are_parts: bool = False) -> Scale:
        """Return a scale in which the largest value is at least 1 unit and has three digits.

        Args:
            unit: The base unit.
            values: Values of the column; None is ignored.
            are_parts: True if the values are the seconds of parts of a step. The scale then has one digit more, so that
                short parts remain readable next to long parts.
        """
        known = [abs(value) for value in values if value is not None and math.isfinite(value)]
        most = max(known, default=1.0)
        scales = _SCALES.get(unit, ((1.0, ""),))
        factor, name = next((one for one in scales if most >= one[0]), scales[-1])
        digits = 2 if most <= 0 else min(4, max(0, 2 - math.floor(math.log10(most / factor))))
        if are_parts:
            digits = 2 if most >= 10 * factor else 3
        return cls(factor=factor, unit=name, decimals=digits)

    def __call__(self, value: float, *, is_signed: bool = False) -> str:
        """Return a number without its unit: ``42.10``, or ``+0.48`` with a sign.

        A number that rounds to zero gets no sign.
        """
        digits = f"{abs(value) / self.factor:,.{self.decimals}f}"
        if not any(digit in "123456789" for digit in digits):
            return digits
        return f"{'−' if value < 0 else '+' if is_signed else ''}{digits}"
