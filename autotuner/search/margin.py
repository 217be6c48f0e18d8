"""How much predicted memory to trust, learnt from trials that ran out of memory and trials that did not."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["allowed_bytes"]

_STEP_BELOW_OOM = 0.02
"""A layout within 2 % of one that ran out is taken to run out too: the predictor's terms are not finer than that."""


def allowed_bytes(limit_bytes: float, trials: Iterable[tuple[float, bool]]) -> float:
    """The largest predicted peak that is still worth a trial.

    The limit, or just below a prediction that ran out of memory: whichever is contradicted by the fewest trials, that
    is, leaves the fewest failures below it and successes above it. Ties go to the larger, since the best layouts lie
    at the edge of memory.

    Args:
        limit_bytes: What a rank may allocate.
        trials: Predicted peak and whether the trial ran out of memory, of every trial that did one or the other.
    """
    seen = list(trials)
    candidates = [limit_bytes]
    candidates += [peak * (1.0 - _STEP_BELOW_OOM) for peak, out_of_memory in seen if out_of_memory]

    def contradictions(allowed: float) -> int:
        return sum((peak <= allowed) == out_of_memory for peak, out_of_memory in seen)

    return min((c for c in candidates if c <= limit_bytes), key=lambda c: (contradictions(c), -c))
