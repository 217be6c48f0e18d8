"""Belief: how likely the runs are under each change of the rate, over all that is unknown of the noise.

The logarithm of a rate is normal around the rate of its sitting, and that around the rate of its layout. How far runs
scatter in a sitting is unknown, and so is how far sittings lie apart: both are summed over, the first with no opinion
(its logarithm is uniform), the second with the opinion of ``_BETWEEN``, which several sittings of the reference
overrule and without which one sitting could never be compared with another. The candidate may scatter more or less
than its reference did: a machine is not as quiet every day, and of three runs two may have been disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Floats
from autotuner.search.comparing.sitting import Sitting

_WITHIN: Floats = np.geomspace(0.0005, 0.5, 40)
"""Standard deviations from run to run in a sitting that are considered. No machine repeats a run closer than the first
(docs/comparisons.md), and runs that are all equal, as a fake's are, count as apart so far."""

_BETWEEN, _WORTH = 0.003, 4.0
"""Standard deviation from sitting to sitting that is assumed, and how many sittings that opinion is worth: the usual
prior of a variance, scaled inverse chi-squared. Measured: docs/comparisons.md."""

_BETWEENS: Floats = np.geomspace(0.001, 0.1, 12)
"""Those that are considered."""

_RATIOS: Floats = np.array([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8])
"""How many times as far the runs of the candidate may scatter."""

_RATIO_WEIGHTS: Floats = np.array([1, 2, 4, 8, 4, 2, 1])
"""How likely each is before the runs, up to a factor."""

_POINTS, _NEGLIGIBLE = 401, 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A mixture of normal likelihoods of the change (of the logarithm), one for each pair of deviations.

    Attributes:
        log_weights: How likely each pair is, given the runs, whatever the change; not normalised.
        centres: Where each has its greatest likelihood.
        deviations: How wide each is.
        within: Deviation from run to run of each.
    """

    log_weights: Floats
    centres: Floats
    deviations: Floats
    within: Floats

    def log_likelihoods(self, changes: Sequence[float]) -> list[float]:
        """How likely the runs are for each change of the logarithm of the rate, up to one factor for all."""
        z = (np.array(changes)[:, None] - self.centres) / self.deviations
        logs = self.log_weights - np.log(self.deviations) - z**2 / 2
        highest = logs.max(axis=1)
        return [float(value) for value in highest + np.log(np.exp(logs - highest[:, None]).sum(axis=1))]

    def reaching(self, log_likelihood: float) -> Belief:
        """What is left of the mixture without the parts that are nowhere as likely as this."""
        kept = self.log_weights - np.log(self.deviations) > log_likelihood
        columns = (self.log_weights, self.centres, self.deviations, self.within)
        log_weights, centres, deviations, within = (column[kept] for column in columns)
        return Belief(log_weights=log_weights, centres=centres, deviations=deviations, within=within)

    def noise(self) -> float:
        """The likely deviation from run to run."""
        return math.exp(float(self._weights() @ np.log(self.within)))

    def middle(self) -> float:
        """The mean of the changes that the runs leave possible."""
        return float(self._weights() @ self.centres)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Changes below which the truth lies with these probabilities, if before the runs all were equally likely."""
        weights = self._weights()
        kept = weights > _NEGLIGIBLE
        weights, centres, deviations = weights[kept], self.centres[kept], self.deviations[kept]
        middle = float(weights @ centres)
        extent = math.sqrt(float(weights @ (deviations**2 + (centres - middle) ** 2)))
        grid = middle + extent * np.linspace(-8, 8, _POINTS)
        z = (grid[:, None] - centres) / deviations
        below = np.cumsum(np.exp(-(z**2) / 2) @ (weights / deviations))
        return [float(value) for value in np.interp(shares, below / below[-1], grid)]

    def _weights(self) -> Floats:
        weights: Floats = np.exp(self.log_weights - self.log_weights.max())
        weights /= weights.sum()
        return weights


def believe(reference: Sequence[Sitting], candidate: Sequence[Sitting]) -> Belief:
    """What sittings of two layouts say of the change from the first to the second."""
    within, between, ratio, log_prior = _considered()
    of_reference, of_candidate = _level(reference, within, between), _level(candidate, ratio * within, between)
    log_scatter = _log_scatter(reference, within) + _log_scatter(candidate, ratio * within)
    return Belief(
        log_weights=log_prior + log_scatter + of_reference.log_fit + of_candidate.log_fit,
        centres=of_candidate.mean - of_reference.mean,
        deviations=np.sqrt(of_candidate.variance + of_reference.variance),
        within=ratio * within,
    )


def believe_pairs(differences: Sitting) -> Belief:
    """What differences of runs by turns say: whatever the sitting does to both is gone from them.

    Here the deviation itself counts as uniform, not its logarithm. Nothing else stands beside the scatter of these
    pairs, and three that lie close by chance would be an alarm too often: 1.3 of 100 equal layouts at a noise of 5 %,
    where this leaves 0.7.
    """
    apart = math.sqrt(2) * _WITHIN
    return Belief(
        log_weights=_log_scatter((differences,), apart) + np.log(apart),
        centres=np.full_like(apart, differences.mean),
        deviations=apart / math.sqrt(differences.num_runs),
        within=_WITHIN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """The rate of one layout by the means of its sittings, for each pair of deviations.

    Attributes:
        mean: Weighted by how well each sitting is known.
        variance: How well this mean is known.
        log_fit: How likely the sittings lie as far apart as they do.
    """

    mean: Floats
    variance: Floats
    log_fit: Floats


def _level(sittings: Sequence[Sitting], within: Floats, between: Floats) -> _Level:
    means = np.array([sitting.mean for sitting in sittings])[:, None]
    num_runs = np.array([sitting.num_runs for sitting in sittings])[:, None]
    precisions = 1 / (between**2 + within**2 / num_runs)
    total = precisions.sum(axis=0)
    mean = (precisions * means).sum(axis=0) / total
    misfit = (precisions * (means - mean) ** 2).sum(axis=0)
    log_fit = (np.log(precisions).sum(axis=0) - np.log(total) - misfit) / 2
    return _Level(mean=mean, variance=1 / total, log_fit=log_fit)


def _log_scatter(sittings: Sequence[Sitting], within: Floats) -> Floats:
    """How likely runs lie as far from the means of their sittings as they do."""
    freedom = sum(sitting.num_runs - 1 for sitting in sittings)
    squares = sum(sitting.squares for sitting in sittings)
    fit: Floats = -freedom * np.log(within) - squares / (2 * within**2)
    return fit


@lru_cache(maxsize=1)
def _considered() -> tuple[Floats, Floats, Floats, Floats]:
    """Every combination of deviations and ratio, with the logarithm of how likely it is before the runs."""
    within, between, ratio = (grid.ravel() for grid in np.meshgrid(_WITHIN, _BETWEENS, _RATIOS))
    log_ratio: Floats = np.log(np.resize(_RATIO_WEIGHTS, len(within)))
    log_between = -_WORTH * np.log(between) - _WORTH * _BETWEEN**2 / (2 * between**2)
    return within, between, ratio, log_ratio + log_between
