"""When a delivery that failed is tried again, and when it is given up."""

from __future__ import annotations

DELAYS_S = (10.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0, 43200.0)
"""After each attempt that failed: soon for a restart, then over a night for what somebody has to mend (20.6 hours)."""

MOST_ATTEMPTS = len(DELAYS_S) + 1

_JITTER = 0.25
"""Each delay is up to so much longer, by chance: what failed together does not come back together."""


def delay_s(attempts: int, luck: float, retry_after_s: float | None = None) -> float | None:
    """Seconds to the next attempt; None where it is given up.

    Args:
        attempts: How often it was posted, 1 or more.
        luck: Uniform in 0..1.
        retry_after_s: What the receiver asked for; it is kept where it is longer, up to the longest delay.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    wanted = max(DELAYS_S[attempts - 1], min(retry_after_s or 0.0, DELAYS_S[-1]))
    return wanted * (1 + _JITTER * luck)
