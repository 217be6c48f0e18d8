"""How many streams of events are open: each holds a connection for as long as a sweep runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from autotuner.core.access import Caller
from autotuner.core.errors import QuotaExceeded

_WAIT_S = 10
"""What a reader who came too late is asked to wait: streams end when their sweeps do, or their pages are closed."""


class OpenStreams:
    """Counts open streams, in all and of each caller; callers who were not asked who they are count as one.

    Args:
        at_once: In all.
        per_caller: Of one caller, where the service asks who calls.
    """

    def __init__(self, *, at_once: int, per_caller: int) -> None:
        self._at_once = at_once
        self._per_caller = per_caller
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """One more stream, until the context is left. To be entered and left on the event loop alone.

        Raises:
            QuotaExceeded: So many are open.
        """
        if self._open.total() >= self._at_once:
            raise QuotaExceeded(f"{self._at_once} streams of events are open, as many as this service keeps", _WAIT_S)
        if caller.name and self._open[caller.name] >= self._per_caller:
            raise QuotaExceeded(f"{caller.name} has {self._per_caller} streams open, as many as one may", _WAIT_S)
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1
            if not self._open[caller.name]:
                del self._open[caller.name]
