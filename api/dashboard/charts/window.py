"""The part of a picture's axis that is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from autotuner.core.errors import InvalidInput

_NARROWEST = 0.002
"""Share of an axis below which looking closer shows single lines."""


@dataclass(frozen=True, slots=True)
class Window:
    """From one share of an axis to another, 0..1; as an address says it: ``0.25-0.5``."""

    low: float
    high: float

    @classmethod
    def parse(cls, said: str | None) -> Self:
        """The window that an address asks for; nothing asks for all.

        Raises:
            InvalidInput: It is none.
        """
        if not said:
            return cls(0.0, 1.0)
        match = re.fullmatch(r"(\d?\.?\d{1,6})-(\d?\.?\d{1,6})", said)
        low, high = (float(match[1]), float(match[2])) if match else (1.0, 0.0)
        if not 0 <= low < high <= 1:
            raise InvalidInput("zoom", said, "must be two shares of the axis, 0 to 1, the smaller first", "0-0.5")
        return cls(low, high)._held()

    def __str__(self) -> str:
        return f"{round(self.low, 4):g}-{round(self.high, 4):g}"

    @property
    def is_whole(self) -> bool:
        """All of the axis."""
        return self.high - self.low > 0.9999

    @property
    def closer(self) -> Window:
        """Its middle half."""
        return self._of_size((self.high - self.low) / 2)

    @property
    def farther(self) -> Window:
        """Twice as much, as far as there is so much."""
        return self._of_size((self.high - self.low) * 2)

    @property
    def earlier(self) -> Window:
        """Half of its width to the left."""
        return self._moved(-(self.high - self.low) / 2)

    @property
    def later(self) -> Window:
        """Half of its width to the right."""
        return self._moved((self.high - self.low) / 2)

    def _of_size(self, size: float) -> Window:
        middle = (self.low + self.high) / 2
        return Window(middle - size / 2, middle + size / 2)._held()

    def _moved(self, share: float) -> Window:
        return Window(self.low + share, self.high + share)._held()

    def _held(self) -> Self:
        size = min(1.0, max(_NARROWEST, self.high - self.low))
        low = min(max(0.0, self.low), 1 - size)
        return type(self)(low, low + size)


WHOLE = Window(0.0, 1.0)
