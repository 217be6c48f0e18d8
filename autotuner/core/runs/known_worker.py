"""KnownWorker: a worker as it last told of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SIGN_S", "KnownWorker"]

SIGN_S = 10.0
"""How often a worker tells that it lives."""

_SILENT_S = 6 * SIGN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorker:
    """A process that runs sweeps, for people to look at: what it may be given is decided by leases, not by this.

    Attributes:
        name: What it holds its leases under.
        version: Its release.
        started_at: Epoch seconds.
        seen_at: When it last told that it lives, epoch seconds of its own clock.
    """

    name: str
    version: str
    started_at: float
    seen_at: float

    def is_alive(self, now: float) -> bool:
        """Whether it told of itself within a minute; a clock that is ahead of ``now`` is no reason to doubt it."""
        return now - self.seen_at <= _SILENT_S
