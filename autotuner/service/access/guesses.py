"""How often an address may show wrong tokens."""

from __future__ import annotations

import math
import time

from autotuner.core.errors import TooOften
from autotuner.service.networks import household

_PER_MINUTE = 20


class Guesses:
    """Counts wrong tokens by address and by the token guessed at; a digest costs more to judge than to send."""

    def __init__(self) -> None:
        from limits import RateLimitItemPerMinute  # noqa: PLC0415  # takes a tenth of a second, which no command has
        from limits.storage import MemoryStorage  # noqa: PLC0415
        from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415

        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._limit = RateLimitItemPerMinute(_PER_MINUTE)

    def check(self, address: str, token_id: str) -> None:
        """Return if the address may guess once more at the token of that id; empty: at an id that no token has.

        Raises:
            TooOften: It showed too many wrong ones within a minute.
        """
        key = (household(address), token_id)
        if self._limiter.test(self._limit, *key):
            return
        wait_s = self._limiter.get_window_stats(self._limit, *key).reset_time - time.time()
        detail = f"{_PER_MINUTE} wrong tokens came from {address} within a minute; come back later"
        raise TooOften(detail, max(1, math.ceil(wait_s)))

    def count(self, address: str, token_id: str) -> None:
        """Count one more wrong guess."""
        self._limiter.hit(self._limit, household(address), token_id)
