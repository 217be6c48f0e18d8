"""Functions of the normal distribution, which numpy lacks."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Floats

_LOWEST, _HIGHEST, _STEP = -12.0, 8.0, 1 / 256
"""Range and step of the table over u. Below the range, the difference of two nearly equal numbers is lost; above it, u
is exact."""


def log_expected_gain(mean: Floats, deviation: Floats) -> Floats:
    """Return the log expected improvement, log E[max(g, 0)], of normally distributed gains g.

    With u = mean / deviation it is log(deviation) + log(pdf(u) + u cdf(u)) (Jones, Schonlau and Welch 1998, J. Global
    Optimization 13, equation 15). The second logarithm is read from a table. Outside the table it is log(u) for large
    u, and log(pdf(u) / u^2) for very negative u.
    """
    deviation = np.maximum(deviation, 1e-9)
    u = mean / deviation
    grid, values = _gains()
    inside = np.interp(u, grid, values)
    low, high = np.minimum(u, _LOWEST), np.maximum(u, _HIGHEST)
    tail = -(low**2) / 2 - 2 * np.log(-low) - math.log(2 * math.pi) / 2
    standard = np.where(u < _LOWEST, tail, np.where(u > _HIGHEST, np.log(high), inside))
    log_gain: Floats = np.log(deviation) + standard
    return log_gain


def log_probability(mean: Floats, deviation: Floats) -> Floats:
    """Return the logarithm of the probability that a normally distributed quantity is above 0, approximately.

    It uses the logistic curve with the same slope at 0, since numpy has no normal distribution.
    """
    log_chance: Floats = -np.logaddexp(0.0, -1.702 * mean / deviation)
    return log_chance


def below(u: Floats) -> Floats:
    """Return the standard normal distribution function at u, from a table with errors below 1e-6."""
    grid, values = _distribution()
    shares: Floats = np.interp(u, grid, values)
    return shares


def inverse_mills(z: float) -> float:
    """Return the standard normal density at z divided by the standard normal distribution function at z.

    Far below 0, where both are tiny, the result is -z - 1/z.
    """
    if z < -30:
        return -z - 1 / z
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (math.erfc(-z / math.sqrt(2)) / 2)


@lru_cache(maxsize=1)
def _distribution() -> tuple[Floats, Floats]:
    grid = np.linspace(-8.0, 8.0, 4097)
    return grid, np.array([0.5 * math.erfc(-u / math.sqrt(2)) for u in grid])


@lru_cache(maxsize=1)
def _gains() -> tuple[Floats, Floats]:
    grid = np.arange(_LOWEST, _HIGHEST + _STEP, _STEP)
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([math.erfc(-u / math.sqrt(2)) / 2 for u in grid])
    return grid, np.log(density + grid * below)
