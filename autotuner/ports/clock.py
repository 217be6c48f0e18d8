"""Clock: time, so that tests can hold it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now(self) -> float:
        """Epoch seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after about that long."""
        ...
