"""Clock: time, so that tests can hold it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now(self) -> float:
        """Epoch seconds, for people: they jump when somebody sets the clock, and machines disagree about them."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, for durations; their origin is this process's own, so no other knows it."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after about that long."""
        ...


class SystemClock:
    """The time of this machine."""

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that only grow, even if the clock is set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after that long."""
        time.sleep(seconds)
