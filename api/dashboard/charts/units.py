"""The unit that a whole picture or column is read in, so that its numbers can be compared at a glance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecondsUnit:
    """Seconds, milliseconds or microseconds, by the longest of what is told.

    Attributes:
        name: ``ms``.
        seconds: How long one is.
        digits: Behind the point, so that the longest has three digits or more and the shortest is still seen.
    """

    name: str
    seconds: float
    digits: int

    @classmethod
    def of(cls, longest_s: float) -> SecondsUnit:
        """The unit in which the longest is 1 or more, as far as there is one."""
        name, size = next((unit for unit in _UNITS if longest_s >= unit[1]), _UNITS[-1])
        return cls(name=name, seconds=size, digits=2 if longest_s >= 10 * size else 3)

    def told(self, seconds: float) -> str:
        """``42.10``, without the unit, which stands in the head."""
        return f"{seconds / self.seconds:,.{self.digits}f}"

    def signed(self, seconds: float) -> str:
        """``−1.80`` or ``+0.48``, with a true minus; what rounds to nothing has no sign."""
        text = self.told(abs(seconds))
        if not any(character in "123456789" for character in text):
            return text
        return f"{'−' if seconds < 0 else '+'}{text}"


_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
