"""Clock: the source of time, which tests replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time, which tests replace by one that they control."""

    def now(self) -> float:
        """Return epoch seconds, for people. They jump when the clock is set, and the clocks of two machines differ."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for durations. They mean something only within this process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after about that many seconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never decrease, even if the clock is set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        time.sleep(seconds)
