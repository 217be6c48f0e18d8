"""Doing something again and again on a thread of its own, whatever goes wrong, until told to stop."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag

import structlog

from autotuner.core.errors import StoreUnavailable

_log = structlog.get_logger(__name__)


def forever(step: Callable[[], object], *, poll_s: float, shutdown: Flag, name: str) -> None:
    """Do the step until ``shutdown`` is set.

    Args:
        step: Says truly whether there was something to do; where there was not, or it raised, the next waits.
        poll_s: How long it waits.
        shutdown: Ends the wait, too.
        name: What the log calls it.
    """
    while not shutdown.is_set():
        found: object = False
        try:
            found = step()
        except StoreUnavailable as error:
            _log.warning(f"{name}.store_unavailable", error=str(error))
        except Exception:  # a thread that dies silently would leave undone all that comes later
            _log.exception(f"{name}.error")
        if not found:
            shutdown.wait(poll_s)
