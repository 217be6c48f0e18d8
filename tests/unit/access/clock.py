"""A clock that tests set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SetClock:
    at: float = 1_760_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
