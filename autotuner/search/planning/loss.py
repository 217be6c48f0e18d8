"""Loss: what a choice of clusters costs on average, limits that are broken counted in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Floats
from autotuner.search.planning.goal import Goal
from autotuner.search.planning.outcome import Outcome

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Loss:
    """The average loss of each of several clusters, whose run times are log-normal.

    A run of t hours loses rate x t, and weight times as much on top where it breaks a limit. With a deadline the rate
    is the price of an hour, so that losses are dollars; with a price limit alone it is 1, and the limit what the money
    buys: hours. Where neither is named, runs are compared by the product of time and cost: the rate is the root of the
    price.

    Attributes:
        rates: Of each cluster.
        limits_h: Hours up to which a run keeps all limits.
        weight: How many more such runs one counts as that takes longer.
        dollars: What a unit of loss is worth to whoever takes each cluster.
    """

    rates: Floats
    limits_h: Floats
    weight: float
    dollars: Floats

    @classmethod
    def of(cls, found: Sequence[Outcome], goal: Goal) -> Loss:
        """The loss that a goal means."""
        return cls.by_prices(np.array([one.footprint.price_per_hour or one.cluster.world_size for one in found]), goal)

    @classmethod
    def by_prices(cls, prices: Floats, goal: Goal) -> Loss:
        """The same of clusters whose hours cost that; one without a price counts an accelerator-hour as a dollar."""
        rates = _rates(prices, goal)
        bought_h = np.full(len(prices), np.inf) if goal.price_limit is None else goal.price_limit / prices
        deadline_h = math.inf if goal.deadline_s is None else goal.deadline_s / _S_PER_HOUR
        return cls(
            rates=rates,
            limits_h=np.minimum(bought_h, deadline_h),
            weight=goal.broken_weight,
            dollars=prices / rates,
        )

    def expected(self, log_hours: Floats, deviations: Floats) -> Floats:
        """The average loss of each: shape (..., clusters).

        Args:
            log_hours: Means of the logarithms of the times in hours: shape (..., clusters).
            deviations: Of these logarithms: shape (clusters,).
        """
        mean_h = np.exp(log_hours + deviations**2 / 2)
        losses: Floats = self.rates * mean_h * (1 + self.weight * self._share_beyond(log_hours, deviations))
        return losses

    def chance_kept(self, log_hours: Floats, deviations: Floats) -> Floats:
        """How likely each is to keep every limit."""
        return _below((np.log(self.limits_h) - log_hours) / np.maximum(deviations, 1e-9))

    def _share_beyond(self, log_hours: Floats, deviations: Floats) -> Floats:
        """Which share of the average time belongs to runs that break a limit: E[t where t > limit] / E[t]."""
        deviations = np.maximum(deviations, 1e-9)
        return _below((log_hours - np.log(self.limits_h)) / deviations + deviations)


def _rates(prices: Floats, goal: Goal) -> Floats:
    if goal.deadline_s is not None:
        return prices
    return np.ones(len(prices)) if goal.price_limit is not None else np.sqrt(prices)


def _below(u: Floats) -> Floats:
    """The normal distribution function, tabulated, as numpy has none; off by less than 1e-6."""
    grid, values = _table()
    below: Floats = np.interp(u, grid, values)
    return below


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats]:
    grid = np.linspace(-8.0, 8.0, 4097)
    return grid, np.array([0.5 * math.erfc(-u / math.sqrt(2)) for u in grid])
