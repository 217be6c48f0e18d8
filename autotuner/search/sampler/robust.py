"""How much each of many errors may be believed, where some runs went wrong."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Floats

_DEGREES_OF_FREEDOM = 2.0
"""Of the Student distribution of what no factor explains: a run on a broken network is further off than normal errors
are, and half of a sheet's runs may be. Replays of the published tables do not tell 1 from 4 (docs/learning.md)."""

_ROUNDS = 10
"""Of the iteration, which then changes no factor by a percent of its deviation."""


def believed_noise(covariance: Floats, errors: Floats, own_variance: Floats, *, only_above: bool = False) -> Floats:
    """The variance of a normal error by which each observation counts in the place of one that is Student's.

    Expectation maximisation: an observation far from what the others say of it counts less (Lange, Little and Taylor
    1989, Robust statistical modeling using the t distribution, section 3).

    Args:
        covariance: Of what the observations have in common, shape (n, n).
        errors: Observed, of mean 0 beforehand.
        own_variance: Of each observation's own part, where nothing went wrong.
        only_above: Whether what lies below is believed however far off: a fault makes no run faster.
    """
    lowest = 0.0 if only_above else -np.inf
    beyond = np.maximum(errors - np.median(errors), lowest)  # not the mean: runs that went wrong would move it
    distance = np.square(beyond)
    for _ in range(_ROUNDS):
        noise = own_variance * (_DEGREES_OF_FREEDOM + distance / own_variance) / (_DEGREES_OF_FREEDOM + 1)
        explained = np.linalg.solve(covariance + np.diag(noise), covariance)
        left = np.maximum(np.diag(covariance) - np.einsum("ij,ji->i", covariance, explained), 0.0)
        distance = np.square(np.maximum(errors - errors @ explained, lowest)) + left
    return noise
