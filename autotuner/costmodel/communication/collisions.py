"""How uneven switches that pick a way by hashing load their links: balls into bins.

A model, compared with no measurement: each queue pair of each connection is one ball, each way up is one bin, and the
collective waits for the fullest. With as many balls as bins that holds about ``log n / log log n`` (Raab, Steger,
"Balls into bins, a simple and tight analysis", 1998): networks without adaptive routing are slower than their links.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from autotuner.core.columns import Floats


def unevenness(num_balls: Floats, num_bins: float) -> Floats:
    """Balls in the fullest bin over those in the average one, as expected; 1 for no balls or a single bin.

    Numbers of balls in bins count as Poisson and independent: at most 3 % beside a simulation of 8 to 512 bins.
    """
    bins = max(1, round(num_bins))
    few, which = np.unique(np.maximum(num_balls, 0.0), return_inverse=True)
    return np.array([_one(float(balls), bins) for balls in few])[which].reshape(np.shape(num_balls))


def _one(num_balls: float, num_bins: int) -> float:
    """By the tail: the fullest bin holds ``sum over k of P(some bin holds more than k)`` balls."""
    if num_balls <= 1 or num_bins == 1:
        return float(num_bins) if 0 < num_balls <= 1 else 1.0
    mean = num_balls / num_bins
    if mean > _MANY:
        return 1 + sqrt(2 * np.log(num_bins) / mean)
    counts = np.arange(1, ceil(mean + 12 * sqrt(mean) + 30))
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    at_most = np.minimum(np.cumsum(np.exp(logarithms)), 1.0)
    return max(1.0, float((1 - at_most**num_bins).sum())) / mean


_MANY = 1e4
"""Balls per bin from which the tail is that of a normal distribution: its square root is within 1 %."""
