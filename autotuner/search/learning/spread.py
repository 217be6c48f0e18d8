"""Whether intervals hold as many of a team's own trials as they claim."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Floats, Integers
from autotuner.costmodel.uncertainty import Z80

_CLAIM = 4.0
"""Jobs that the intervals' own claim is worth: with fewer, the team's trials say less of the width than it does."""

_LEAST = 0.7
"""Intervals become no narrower than that by predictions that proved right: trials of the next job may not."""


def interval_scale(errors: Floats, deviations: Floats, jobs: Integers) -> float:
    """What to multiply deviations by, so that 80 % of the errors are within their 80 % interval.

    Runs of one job err together: a job's runs weigh as much as the square root of their number.

    Args:
        errors: Of predictions made without the run's own job.
        deviations: That these predictions claimed.
        jobs: Number of each run's job.
    """
    _, which, counts = np.unique(jobs, return_inverse=True, return_counts=True)
    weights = np.asarray(counts[which] ** -0.5, dtype=np.float64)
    needed, jobs_told = needed_scale(errors, deviations, weights), len(counts)
    return float(max(needed, _LEAST) ** (jobs_told / (jobs_told + _CLAIM)))


def needed_scale(errors: Floats, deviations: Floats, weights: Floats) -> float:
    """Return what to multiply deviations by, so that 80 % of the errors by weight are within their 80 % interval."""
    distance = np.abs(errors) / deviations
    order = np.argsort(distance)
    reached = np.cumsum(weights[order]) >= 0.8 * weights.sum()
    return float(distance[order][np.argmax(reached)]) / Z80
