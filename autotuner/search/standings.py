"""Standings: what a ranking cannot tell apart, from how well each step time is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.trial import RankedTime

_Z95 = 1.96
"""Standard deviations from the median to either end of a 95 % interval of a normal distribution."""

_RANGE_OF_TWO = 1.128
"""Expected distance of two normal draws, in standard deviations: d2 of any table of control charts."""

_RUN_TO_RUN, _WORTH = 0.01, 2.0
"""Relative deviation of equal runs that is assumed before any pair of them was seen, and how many pairs that is worth:
the distance of a single pair says little of how far runs lie apart."""

_CONTENDING = 6.0
"""Deviations within which a trial may still be the best; beyond them its probability is below 1e-8."""

_GRID = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How sure a trial's place is.

    Attributes:
        probability_best: That this trial's layout is the best of those ranked, 0..1; they sum to 1.
        tied_with_best: Its value differs from that of the first by no more than chance makes step times differ, 95
            times in 100.
        step_time_s: Geometric mean of the step times of all its runs.
        value: What the layout is worth by what the sweep ranks by, at that step time.
        relative_error: Half the 95 % interval of that, as a share of it, with what equal runs differ by.
    """

    probability_best: float
    tied_with_best: bool
    step_time_s: float
    value: float
    relative_error: float


def standings(times: Sequence[RankedTime]) -> Mapping[str, Standing]:
    """The standing of every ranked trial of a sweep by its id, the first of the ranking first.

    A median is known within its own interval; on top of that equal runs differ, which one run cannot see: by what is
    usual, and by what runs of one layout differed by in the sweep, which the mean of several runs is less subject to.
    Errors of the logarithms count as normal and independent; what a step is worth counts as known.
    """
    if not times:
        return {}
    log_s = np.array([_logs(time).mean() for time in times])
    deviations = _deviations(times)
    log_cost = log_s - np.log([time.worth_per_step for time in times])  # of the inverse of the value
    chances = _chances_to_be_least(log_cost, deviations)
    apart = np.abs(log_cost - log_cost[0]) / np.hypot(deviations, deviations[0])
    return {
        time.trial_id: Standing(
            probability_best=float(chances[row]),
            tied_with_best=bool(apart[row] <= _Z95),
            step_time_s=math.exp(log_s[row]),
            value=math.exp(-log_cost[row]),
            relative_error=float(_Z95 * deviations[row]),
        )
        for row, time in enumerate(times)
    }


def _logs(time: RankedTime) -> Floats:
    """Of the step times of every run of the layout."""
    logs: Floats = np.log([time.step_time_s, *time.repeated_s])
    return logs


def _deviations(times: Sequence[RankedTime]) -> Floats:
    """Standard deviation of the mean log of each step time."""
    ranges = [time.noise_floor / _RANGE_OF_TWO for time in times if time.noise_floor is not None]
    num_repeats = sum(len(time.repeated_s) for time in times)
    squares = _WORTH * _RUN_TO_RUN**2 + sum(distance**2 for distance in ranges)
    squares += sum(float(((_logs(time) - _logs(time).mean()) ** 2).sum()) for time in times if time.repeated_s)
    between_runs = math.sqrt(squares / (_WORTH + len(ranges) + num_repeats))
    within_run = np.array([(time.step_time_interval_s or 0.0) / time.step_time_s / _Z95 for time in times])
    num_runs = np.array([1 + len(time.repeated_s) for time in times])
    deviations: Floats = np.hypot(within_run, between_runs) / np.sqrt(num_runs)
    return deviations


def _chances_to_be_least(means: Floats, deviations: Floats) -> Floats:
    """Probability that each of some independent normal quantities is the least of them.

    The integral of the density of one times the probabilities that the others lie above, by the trapezoidal rule over
    those that contend; what the rule is off by is shared out.
    """
    highest = (means + _CONTENDING * deviations).min()
    contends = np.flatnonzero(means - _CONTENDING * deviations <= highest)
    mean, deviation = means[contends], deviations[contends]
    grid = np.linspace((mean - _CONTENDING * deviation).min(), highest, _GRID)
    z = (grid - mean[:, None]) / deviation[:, None]
    log_above = np.log(np.maximum(_upper_tail(z), 1e-300))
    log_density = -(z**2) / 2 - np.log(deviation)[:, None]
    weights = np.exp(log_density + log_above.sum(axis=0) - log_above).sum(axis=1)
    chances = np.zeros(len(means))
    chances[contends] = weights / weights.sum()
    return chances


def _upper_tail(z: Floats) -> Floats:
    """Probability of a standard normal above each value."""
    tails: Floats = np.vectorize(math.erfc)(z / math.sqrt(2)) / 2
    return tails
