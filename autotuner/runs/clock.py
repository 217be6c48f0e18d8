"""Clock: the source of time, which tests replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of a source of time. Tests replace it by a clock that they control."""

    def now(self) -> float:
        """Return the time in epoch seconds, to show it to people.

        The value jumps when somebody sets the clock, and the clocks of two machines differ.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, to measure durations.

        Only differences within this process are meaningful.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Let the calling thread wait about ``seconds`` seconds."""
        ...


class SystemClock:
    """The real clock of this machine, which the service and the commands use; tests use others."""

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never decrease, even if the clock is set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds`` seconds."""
        time.sleep(seconds)
