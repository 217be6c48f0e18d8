"""Refusals: those of the last minute, so that whoever knocks again and again does not fill the audit log."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autotuner.core.access import AuditEntry

_MINUTE_S = 60.0

_MOST = 600
"""Refusals that one process records in a minute, whoever knocks; the request log has all of them."""


class Refusals:
    """Which refusals are news: the first of its kind within a minute, and not too many of them.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: set[tuple[str, str, str, str, int]] = set()
        self._lock = threading.Lock()

    def is_news(self, entry: AuditEntry) -> bool:
        """Whether it is to be recorded; asking makes it known."""
        kind = (entry.caller, entry.address, entry.action, entry.subject, entry.status)
        with self._lock:
            if self._clock() - self._began >= _MINUTE_S:
                self._began = self._clock()
                self._seen.clear()
            if kind in self._seen or len(self._seen) >= _MOST:
                return False
            self._seen.add(kind)
            return True
