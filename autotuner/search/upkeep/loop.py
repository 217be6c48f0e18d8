"""The loop that looks after what follows sweeps: every few seconds each of its steps is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event as Flag

import structlog

from autotuner.errors import StoreUnavailable

__all__ = ["UpkeepLoop"]

_log = structlog.get_logger(__name__)


class UpkeepLoop:
    """Does its steps again and again until told to stop.

    Of several loops that share a store each may do every step: a step is made of transactions that one of them wins, so
    that it needs no lease, and who dies in the middle leaves it to the next.

    Args:
        steps: What is to be done; one that raises is done again the next time, and keeps no other from being done.
        shutdown: Set it to return.
    """

    def __init__(self, steps: Sequence[Callable[[], object]], *, shutdown: Flag) -> None:
        self._steps = steps
        self._shutdown = shutdown

    def run_forever(self, poll_s: float) -> None:
        """Do all steps every ``poll_s`` seconds."""
        while not self._shutdown.is_set():
            self.run_once()
            self._shutdown.wait(poll_s)

    def run_once(self) -> None:
        """Do each step once."""
        for step in self._steps:
            try:
                step()
            except StoreUnavailable as error:
                _log.warning("upkeep.store_unavailable", error=str(error))
            except Exception:  # a loop that dies silently would leave every later run unstarted
                _log.exception("upkeep.error")
