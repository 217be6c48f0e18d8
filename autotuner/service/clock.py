"""The real clock."""

from __future__ import annotations

import time


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
