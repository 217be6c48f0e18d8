"""Questions to a service that may be killed and started again meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from autotuner.core.errors import StoreUnavailable

_POLL_S = 0.5
_RESTART_S = 60.0
"""How long a service may be away before it is given up on."""

T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """The first answer.

    Raises:
        StoreUnavailable: There was none for a minute.
    """
    give_up_at = time.monotonic() + _RESTART_S
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_POLL_S)
