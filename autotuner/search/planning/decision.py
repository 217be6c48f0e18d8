"""Decision: which cluster has the least expected loss, how sure that is, and the value of knowing more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.costmodel.uncertainty import PARTS, interval_error
from autotuner.search.planning.outcomes import Outcome, job_on
from autotuner.search.planning.request import Goal, PlanRequest
from autotuner.search.sampler.normal import below

_S_PER_HOUR = 3600.0

_NUM_FACTORS = len(PARTS) + 1
"""Number of uncertain factors: the parts of a step, and the cluster's speed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Errors:
    """The uncertainty of one predicted step time, by source of error.

    Each number is a standard deviation of the logarithm of the step time.
    """

    parts: Floats
    """Relative change of the step by one standard deviation of each part's factor, in the order of ``PARTS``."""
    shares: Floats
    """Shares of the parts in the step, in the order of ``PARTS``."""
    common: float
    """Relative change of the step by one standard deviation of the common factor."""
    residual: float
    """Standard deviation of the error that only this layout has."""


def errors_of(layout: Layout, job: Job, prediction: Prediction) -> Errors:
    """Return the uncertainty of a predicted step time by source of error, from which its 80 % interval is computed."""
    found = interval_error(LayoutColumns.from_layouts([layout]), job)
    deviations = np.array([float(np.ravel(found.parts[name])[0]) for name in PARTS])
    total_s = prediction.step_time.total_s
    shares = np.array([getattr(prediction.step_time, name) / total_s for name in PARTS])
    residual = float(np.ravel(found.residual)[0])
    return Errors(parts=shares * deviations, shares=shares, common=found.common, residual=residual)


@dataclass(frozen=True, eq=False, kw_only=True)
class PilotResult:
    """The knowledge from a small sweep on one accelerator: which prediction errors it measures, and how well.

    An error factor is the unknown ratio of true to predicted time of one part of a step. A sweep measures sums of
    logarithms of error factors. Each measured sum has some noise.
    """

    accelerator: str
    """Accelerator whose factors were measured."""
    rows: Floats
    """Weights of the factors in each measured sum: shape (sums, factors)."""
    noise: Floats
    """Standard deviation of the noise of each sum."""

    @classmethod
    def by_parts(cls, accelerator: str, errors: Errors, parts: Iterable[str], num_trials: int) -> PilotResult | None:
        """Return the knowledge from trials that measure some parts of a step; None if the step has no such part.

        For each part, the trials measure the product of two factors: the part's own error factor, and the error factor
        that all parts have in common. The noise of a part is the residual error of a whole step, divided by the part's
        share of the step and by the square root of ``num_trials``.

        Args:
            accelerator: Name of the accelerator of the trials.
            errors: Error model of the trial's predicted step time.
            parts: Parts of a step that run in the trials exactly as in the planned training run.
            num_trials: Number of trials.
        """
        names = tuple(PARTS)
        seen = [names.index(name) for name in parts if errors.shares[names.index(name)] > 0]
        if not seen:
            return None
        rows = np.zeros((len(seen), _NUM_FACTORS))
        rows[:, -1] = errors.common
        rows[np.arange(len(seen)), seen] = errors.parts[seen] / errors.shares[seen]
        return cls(
            accelerator=accelerator, rows=rows, noise=errors.residual / errors.shares[seen] / np.sqrt(num_trials)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Belief:
    """The uncertain hours of a training run on several clusters: a joint normal distribution of their logarithms."""

    log_hours: Floats
    """Mean of the logarithm of each cluster's hours."""
    weights: Floats
    """Change of the logarithm of each cluster's hours by one standard deviation of each factor: shape (clusters,
    factors of all accelerators)."""
    covariance: Floats
    """Covariance of the factors, given the measurements: shape (factors, factors)."""
    own: Floats
    """Standard deviation of the error that only one cluster has, for each cluster."""
    accelerators: tuple[str, ...]
    """Accelerator to which each factor belongs, in the order of the factors."""

    @classmethod
    def of(cls, found: Sequence[Outcome], errors: Sequence[Errors]) -> Belief:
        """Return the distribution of the run times as predicted, before a sweep measures anything.

        Args:
            found: Predicted run of each cluster.
            errors: Error model of the predicted step time of each cluster.
        """
        names = tuple(dict.fromkeys(outcome.cluster.accelerator.name for outcome in found))
        weights = np.zeros((len(found), _NUM_FACTORS * len(names)))
        for row, (outcome, error) in enumerate(zip(found, errors, strict=True)):
            weights[row, _columns(names, outcome.cluster.accelerator.name)] = [*error.parts, error.common]
        shared = np.sum(weights**2, axis=1)
        deviations = np.array([outcome.deviation for outcome in found])
        return cls(
            log_hours=np.log([outcome.time_s.median / _S_PER_HOUR for outcome in found]),
            weights=weights,
            covariance=np.eye(weights.shape[1]),
            own=np.sqrt(np.maximum(deviations**2 - shared, 0.0)),
            accelerators=names,
        )

    @property
    def deviations(self) -> Floats:
        """Standard deviation of the logarithm of each cluster's run time."""
        shared = np.einsum("if,fg,ig->i", self.weights, self.covariance, self.weights)
        whole: Floats = np.sqrt(np.maximum(shared, 0.0) + self.own**2)
        return whole

    @property
    def shared_covariance(self) -> Floats:
        """Covariance of the logarithms of the clusters' run times, from errors that clusters have in common."""
        found: Floats = self.weights @ self.covariance @ self.weights.T
        return found

    def after(self, result: PilotResult) -> Belief:
        """Return the distribution of the run times that would remain after a small sweep.

        Only the uncertainty shrinks: the results of the sweep are not known yet.

        Args:
            result: The information that the sweep would give.
        """
        rows = np.zeros((len(result.rows), self.weights.shape[1]))
        rows[:, _columns(self.accelerators, result.accelerator)] = result.rows
        across = rows @ self.covariance
        gain = np.linalg.solve(across @ rows.T + np.diag(result.noise**2), across)
        return replace(self, covariance=self.covariance - across.T @ gain)


def _columns(names: Sequence[str], name: str) -> slice:
    start = _NUM_FACTORS * names.index(name)
    return slice(start, start + _NUM_FACTORS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Loss:
    """A loss function that rates a run on each of several clusters; the run times are log-normal.

    A run of t hours has the loss rate x t. If the run breaks the deadline or the price limit, ``weight`` x rate x t is
    added. The rate depends on the goal:

    * With a deadline, the rate is the price of an hour. The loss is in dollars.
    * With only a price limit, the rate is 1. The loss is in hours, and the limit is the number of hours that the money
      buys.
    * With neither, the rate is the square root of the price of an hour. Minimising this loss minimises time x cost.
    """

    rates: Floats
    """Loss per hour of a run on each cluster."""
    limits_h: Floats
    """Hours up to which a run meets all limits, for each cluster."""
    weight: float
    """Penalty for a run that breaks a limit, as a multiple of the loss of the run."""
    dollars: Floats
    """Dollars per unit of loss, for each cluster."""

    @classmethod
    def of(cls, found: Sequence[Outcome], goal: Goal) -> Loss:
        """Return the loss function for a training run with this goal on each of these clusters.

        If the price of a cluster is unknown, one dollar per accelerator-hour is assumed.
        """
        return cls.by_prices(
            np.array([one.resource_cost.price_per_hour or one.cluster.world_size for one in found]), goal
        )

    @classmethod
    def by_prices(cls, prices: Floats, goal: Goal) -> Loss:
        """Return the loss function for a training run with this goal on clusters with these prices.

        Args:
            prices: Price per hour of each whole cluster.
            goal: Deadline, price limit and penalty.
        """
        rates = np.ones(len(prices)) if goal.price_limit is not None else np.sqrt(prices)
        rates = prices if goal.deadline_s is not None else rates
        bought_h = np.full(len(prices), np.inf) if goal.price_limit is None else goal.price_limit / prices
        deadline_h = math.inf if goal.deadline_s is None else goal.deadline_s / _S_PER_HOUR
        limits_h = np.minimum(bought_h, deadline_h)
        return cls(rates=rates, limits_h=limits_h, weight=goal.broken_weight, dollars=prices / rates)

    def expected(self, log_hours: Floats, deviations: Floats) -> Floats:
        """Return the expected loss of a run on each cluster: shape (..., clusters).

        Args:
            log_hours: Means of the logarithms of the run times in hours: shape (..., clusters).
            deviations: Standard deviations of these logarithms: shape (clusters,).
        """
        mean_h = np.exp(log_hours + deviations**2 / 2)
        # Which share of the average time belongs to runs that break a limit: E[t where t > limit] / E[t].
        floored = np.maximum(deviations, 1e-9)
        share_beyond = below((log_hours - np.log(self.limits_h)) / floored + floored)
        losses: Floats = self.rates * mean_h * (1 + self.weight * share_beyond)
        return losses

    def chance_kept(self, log_hours: Floats, deviations: Floats) -> Floats:
        """Return, for each cluster, the probability that a run meets both the deadline and the price limit.

        Args:
            log_hours: Means of the logarithms of the run times in hours.
            deviations: Standard deviations of these logarithms.
        """
        return below((np.log(self.limits_h) - log_hours) / np.maximum(deviations, 1e-9))


_NUM_DRAWS = 2048
"""Number of random draws of possible measurements. The standard error of a value is then 2 % of a cluster's own
error."""

_SEED = 20_261_123
"""Seed of the random draws. It is fixed, so that answers differ only if questions do."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """A choice of a cluster for a training run: the one with the least expected loss, since run times are uncertain."""

    belief: Belief
    loss: Loss

    @classmethod
    def among(cls, request: PlanRequest, found: Sequence[Outcome]) -> Decision:
        """Return the choice among the clusters of these predicted runs. Nothing has been measured yet."""
        errors = [errors_of(one.best.layout, job_on(request, one.cluster), one.best.prediction) for one in found]
        return cls(belief=Belief.of(found, errors), loss=Loss.of(found, request.goal))

    @property
    def losses(self) -> Floats:
        """The expected loss of a run on each cluster. Its unit depends on the goal (see ``Loss``)."""
        return self.loss.expected(self.belief.log_hours, self.belief.deviations)

    @property
    def best(self) -> int:
        """Index of the cluster with the least expected loss, which the plan recommends."""
        return int(np.argmin(self.losses))

    @property
    def chances_kept(self) -> Floats:
        """One probability per cluster: that a run there meets the deadline and the price limit of the goal.

        A goal without a deadline and without a price limit is always met, so the probability is 1.
        """
        return self.loss.chance_kept(self.belief.log_hours, self.belief.deviations)

    def regret_saved(self, after: Belief) -> float:
        """Return the mean dollars saved if the cluster is chosen only after a small sweep (value of information).

        The function draws possible results of the sweep at random. A result saves money only if it changes the choice
        (Raiffa and Schlaifer 1961, Applied Statistical Decision Theory, preposterior analysis).

        Args:
            after: The distribution of the run times that would remain after a small sweep.
        """
        means = self._drawn(self.belief.shared_covariance - after.shared_covariance)
        return self._dollars_below(self.loss.expected(means, after.deviations))

    @property
    def regret(self) -> float:
        """Expected regret in dollars: the cost of the present choice less the cost of the choice with full knowledge.

        With full knowledge, all run times would be known before the choice.
        """
        return self._dollars_below(self._losses_once_known())

    def chances_best(self) -> Floats:
        """Return the probability that each cluster turns out to have the least loss when true run times are known."""
        losses = self._losses_once_known()
        chances: Floats = np.bincount(np.argmin(losses, axis=1), minlength=len(self.belief.own)) / len(losses)
        return chances

    def _losses_once_known(self) -> Floats:
        """Return the losses that are expected once all times are known: shape (draws, clusters)."""
        means = self._drawn(self.belief.shared_covariance + np.diag(self.belief.own**2))
        return self.loss.expected(means, np.zeros(len(self.belief.own)))

    def _dollars_below(self, losses: Floats) -> float:
        """Return the mean dollars by which the least loss of each draw is below that of the present choice."""
        saved = float(np.mean(losses[:, self.best] - np.min(losses, axis=1)))
        return saved * float(self.loss.dollars[self.best])

    def _drawn(self, covariance: Floats) -> Floats:
        """Return random draws of the means after further measurements: shape (draws, clusters).

        The square root of the covariance is the symmetric one. Eigenvectors alone would have other signs on other
        processors, and so would the draws.
        """
        values, vectors = np.linalg.eigh(covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        drawn: Floats = self.belief.log_hours + _normals(len(values)) @ root
        return drawn


@lru_cache(maxsize=8)
def _normals(num_clusters: int) -> Floats:
    normals = np.random.default_rng(_SEED).standard_normal((_NUM_DRAWS, num_clusters))
    normals.setflags(write=False)
    return normals
