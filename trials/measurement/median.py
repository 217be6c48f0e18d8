"""How well the median of a few steps is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["half_interval_s"]

_CONFIDENCE = 0.95


def half_interval_s(times_s: Sequence[float]) -> float | None:
    """Half the 95 % confidence interval of the median; None where even the extremes bound it less surely (below six).

    The interval runs between two order statistics, equally far from both ends: the true median lies outside with the
    probability that so few of n fair coins show heads. It assumes nothing but independent steps.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    ordered, num_outside = sorted(times_s), _num_outside(len(times_s))
    if num_outside is None:
        return None
    return (ordered[-1 - num_outside] - ordered[num_outside]) / 2


def _num_outside(num_steps: int) -> int | None:
    """Steps that the interval leaves out at each end."""
    chance, num_outside = 0.0, None
    for heads in range(num_steps // 2):
        chance += math.comb(num_steps, heads) / 2**num_steps
        if 2 * chance > 1 - _CONFIDENCE:
            break
        num_outside = heads
    return num_outside
