"""What rows of which only the step time is uncertain are expected to add to a front."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.search.fronts.frontier import Frontier

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
"""Gains are polynomials between the corners of boxes; 16 nodes keep their sum within 1 %, as tests show."""

_REACH = 6.0
"""Standard deviations; beyond lies a billionth."""

_LEAST_DEVIATION = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes:
    """What each row may turn out to be: the log values of a front's metrics, along a line.

    Attributes:
        log_worth: Shape (rows, metrics): of a rate, log of its worth per step; of any other metric, of its value.
        is_rate: Which metrics fall as the step time rises.
        mean: Of the log step time in seconds.
        deviation: Of the same.
    """

    log_worth: Floats
    is_rate: Booleans
    mean: Floats
    deviation: Floats

    def __len__(self) -> int:
        return len(self.mean)

    def take(self, rows: Integers) -> Outcomes:
        """Some of the rows."""
        mean, deviation = self.mean[rows], self.deviation[rows]
        return Outcomes(log_worth=self.log_worth[rows], is_rate=self.is_rate, mean=mean, deviation=deviation)

    @property
    def expected(self) -> Floats:
        """Log values at the expected log step time: shape (rows, metrics)."""
        return self.at(self.mean[:, None])[:, 0]

    def at(self, log_step_s: Floats) -> Floats:
        """Log values at log step times of shape (rows, n): shape (rows, n, metrics)."""
        values: Floats = self.log_worth[:, None, :] - np.where(self.is_rate, log_step_s[..., None], 0.0)
        return values


def steps_to_enter(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Log step time below which each row adds to the front; minus infinity where no speed would do.

    It must be above the reference in everything, and better in one rate than each point that is as good in all else.
    """
    rates, shares = outcomes.log_worth[:, outcomes.is_rate], outcomes.log_worth[:, ~outcomes.is_rate]
    limits = (rates - frontier.reference[outcomes.is_rate]).min(axis=1)
    for point in frontier.points:
        is_beside = (shares <= point[~outcomes.is_rate]).all(axis=1)
        beats_from = (rates - point[outcomes.is_rate]).max(axis=1)
        limits = np.where(is_beside, np.minimum(limits, beats_from), limits)
    is_above = (shares > frontier.reference[~outcomes.is_rate]).all(axis=1)
    entering: Floats = np.where(is_above, limits, -math.inf)
    return entering


def log_expected_volume_gain(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Log of the expected rise of the hypervolume with each row alone; minus infinity where no speed would raise it.

    The expected hypervolume improvement (Emmerich, Giannakoglou and Naujoks 2006, IEEE Trans. Evol. Comput. 10) of
    values that move along a line: Gauss-Legendre quadrature over the normal log step time, from where the row enters
    the front downwards as far as there is any weight, so that hopeless rows still have an order.
    """
    gains = np.full(len(outcomes), -math.inf)
    entering = steps_to_enter(outcomes, frontier)
    rows = np.flatnonzero(entering > -math.inf)
    possible = outcomes.take(rows)
    deviation = np.maximum(possible.deviation, _LEAST_DEVIATION)
    first = np.minimum((entering[rows] - possible.mean) / deviation, _REACH)
    width = first + np.where(first > 0, _REACH, np.hypot(first, _REACH))
    # Its limit, where the difference is all rounding.
    width = np.where(first < -1e6, _REACH**2 / 2 / np.maximum(-first, 1.0), width)
    steps = first[:, None] - width[:, None] * (1 + _NODES) / 2
    volumes = frontier.gains(possible.at(possible.mean[:, None] + deviation[:, None] * steps))
    with np.errstate(divide="ignore"):
        terms = np.log(volumes) + np.log(_WEIGHTS * width[:, None] / 2) - steps**2 / 2 - math.log(2 * math.pi) / 2
    gains[rows] = np.logaddexp.reduce(terms, axis=1)
    return gains
