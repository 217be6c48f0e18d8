"""The real clock."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The time of this machine."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that only grow, whoever sets the clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after that long."""
        time.sleep(seconds)
