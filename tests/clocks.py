"""A clock that a test holds."""

from __future__ import annotations


class ManualClock:
    """Time that passes when told to; sleeping passes it.

    Attributes:
        time: What the clock on the wall shows, which a test may set.
        uptime_s: What no person can set.
    """

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time
        self.uptime_s = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.uptime_s

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.uptime_s += seconds
