"""Sitting: what the equal runs of one sitting say, after the few among them that lie far off were pulled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats

_FAR = 4.0
"""Deviations from the median of its sitting beyond which a run counts as lying there: of normal runs 1 in 16,000."""

_RUNS_PER_OUTLIER = 5
"""Of so many runs one may be pulled in. Where more lie off, they are what the machine is like, and count as noise; and
of three runs that disagree nobody can say which are the outliers."""

_MAD = 1.4826
"""Standard deviation of normal values by their median absolute deviation: 1 / the normal quantile of 0.75."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """Equal runs, as far as a normal distribution needs to know them.

    Attributes:
        num_runs: How many.
        mean: Their mean logarithm.
        squares: Squared distances from it, summed.
    """

    num_runs: int
    mean: float
    squares: float


def sittings(groups: Sequence[Floats]) -> tuple[Sitting, ...]:
    """One for each group of logarithms; how far off is far, all groups tell together."""
    scale = _robust_deviation(groups)
    return tuple(_sitting(_pulled_in(group, _FAR * scale)) for group in groups)


def _sitting(logs: Floats) -> Sitting:
    mean = float(logs.mean())
    return Sitting(num_runs=len(logs), mean=mean, squares=float(((logs - mean) ** 2).sum()))


def _pulled_in(logs: Floats, distance: float) -> Floats:
    """The runs, with the few that lie further from the median than this put at that distance."""
    median = float(np.median(logs))
    pulled: Floats = np.clip(logs, median - distance, median + distance)
    num_far = int((pulled != logs).sum())
    return pulled if num_far <= len(logs) // _RUNS_PER_OUTLIER else logs


def _robust_deviation(groups: Sequence[Floats]) -> float:
    """Standard deviation from run to run, by the median distance from the medians.

    Of an odd number of runs one is the median itself, whose distance of 0 says nothing; the median of an even number
    lies between two runs, nearer to them than their mean is known.
    """
    distances = [_distances(group) for group in groups if len(group) > 1]
    return _MAD * float(np.median(np.concatenate(distances))) if distances else 0.0


def _distances(logs: Floats) -> Floats:
    """How far runs lie from their median, made comparable between few runs and many."""
    distances: Floats = np.sort(np.abs(logs - np.median(logs)))
    num_runs = len(logs)
    return distances[1:] if num_runs % 2 else distances * np.sqrt(num_runs / (num_runs - 1))
