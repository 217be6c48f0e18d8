"""What a few observed layouts say about all others: a Gaussian belief about the log of some quantity of every row.

The error of row x is log(true / predicted) = sum over factors of share(x) * factor + residual(x). The factors (the log
efficiency of matrix products, of tensor communication, ...) are the same for every layout, so one measurement teaches
about all rows in proportion to what they spend on the same parts. The residual is what no part explains; layouts that
differ in little share most of it. Conditioning is exact (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equations 2.23 and 2.24) and never forms a matrix of rows x rows.

A layout that was observed need not be one of the table's job: a small trial ran another job, which shares factors and
residual with that of the table as far as its ``Kinship`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns, concatenate
from autotuner.search.sampler.layout_kernel import similarity

_CHUNK = 1 << 16
"""Rows worked on at once where all rows are needed: temporaries stay within a few megabytes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """A log quantity of some rows: normal, with these means and variances."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Layouts as a belief sees them; those of other jobs than the table's have predictions and shares of their own.

    Attributes:
        layouts: The layouts, or those of the table's job that they stand for.
        log_predicted: Mean of the log quantity, by point.
        loads: What one standard deviation of each factor moves at each point, shape (points, factors).
        residual: Standard deviation of what the factors do not explain, by point.
        jobs: Number of each point's job in the ``Kinship``; 0 is the table's.
    """

    layouts: LayoutColumns
    log_predicted: Floats
    loads: Floats
    residual: Floats
    jobs: Integers

    def __len__(self) -> int:
        return len(self.log_predicted)

    def take(self, index: Integers) -> Points:
        """Some of the points, in the order of the index."""
        return Points(
            layouts=self.layouts.take(index),
            log_predicted=self.log_predicted[index],
            loads=self.loads[index],
            residual=self.residual[index],
            jobs=self.jobs[index],
        )

    @classmethod
    def together(cls, some: Sequence[Points]) -> Points:
        """All points of all of them, at least one."""
        return cls(
            layouts=concatenate([one.layouts for one in some]),
            log_predicted=np.concatenate([one.log_predicted for one in some]),
            loads=np.concatenate([one.loads for one in some]),
            residual=np.concatenate([one.residual for one in some]),
            jobs=np.concatenate([one.jobs for one in some]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Kinship:
    """What jobs share, as correlations between 0 and 1; the first job is the table's.

    Attributes:
        factors: Of each factor in one job with the same one in another, shape (factors, jobs, jobs).
        residual: Of the residuals of a layout in one job and in another, shape (jobs, jobs).
    """

    factors: Floats
    residual: Floats

    @classmethod
    def alone(cls, num_factors: int) -> Kinship:
        """The table's job and no other."""
        return cls(factors=np.ones((num_factors, 1, 1)), residual=np.ones((1, 1)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Related:
    """Points of other jobs, and what these jobs share with the table's and with each other."""

    points: Points
    kinship: Kinship

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: Integers) -> Related:
        """Some of the points."""
        return Related(points=self.points.take(index), kinship=self.kinship)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prior:
    """What is believed before any trial.

    Attributes:
        layouts: One per row.
        log_predicted: Mean of the log quantity, by row.
        shares: What each factor moves in each row, shape (rows, factors).
        deviations: Standard deviation of each factor.
        residual: Standard deviation of what the factors do not explain: of all rows, or of each.
        residual_correlation: Part of the residual's variance that like layouts share; the rest is a layout's own.
    """

    layouts: LayoutColumns
    log_predicted: Floats
    shares: Floats
    deviations: Floats
    residual: float | Floats
    residual_correlation: float

    def points(self, rows: Integers) -> Points:
        """Some rows as points of the belief."""
        residual = np.asarray(self.residual, dtype=np.float64)
        return Points(
            layouts=self.layouts.take(rows),
            log_predicted=self.log_predicted[rows],
            loads=self.shares[rows] * self.deviations,
            residual=residual[rows] if residual.ndim else np.full(len(rows), residual),
            jobs=np.zeros(len(rows), dtype=np.int64),
        )

    def seen(self, rows: Integers, related: Related | None) -> Related:
        """Some rows, and after them the related points."""
        own = self.points(rows)
        if related is None:
            return Related(points=own, kinship=Kinship.alone(self.deviations.size))
        return Related(points=Points.together([own, related.points]), kinship=related.kinship)

    def covariance(self, left: Integers, right: Integers) -> Floats:
        """Of the errors of some rows with those of others, shape (left, right)."""
        kinship = Kinship.alone(self.deviations.size)
        return self.covariance_of(self.points(left), self.points(right), kinship)

    def covariance_of(self, left: Points, right: Points, kinship: Kinship) -> Floats:
        """Of the errors of some points with those of others, shape (left, right).

        Layouts and jobs each have a valid kernel, and so has their product (Rasmussen and Williams 2006, 4.2.4).
        """
        alike = similarity(left.layouts, right.layouts)
        alike = np.where(alike == 1.0, 1.0, self.residual_correlation * alike)
        own = kinship.residual[np.ix_(left.jobs, right.jobs)] * left.residual[:, None] * right.residual
        return _of_factors(left, right, kinship) + own * alike

    def variance(self, rows: Integers) -> Floats:
        """Of the errors of some rows."""
        return _variance(self.points(rows))


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """The belief after some rows, or layouts of other jobs, were observed.

    Attributes:
        seen: Those observed.
        root: Inverse of the Cholesky factor of the observations' covariance.
        whitened: Errors of the observed predictions, made independent and of variance 1 by ``root``.
    """

    prior: Prior
    seen: Points
    kinship: Kinship
    root: Floats
    whitened: Floats

    @property
    def surprise(self) -> float:
        """Sum of squared whitened errors: one per observation where the prior claims the right precision."""
        return float(self.whitened @ self.whitened)

    def at(self, rows: Integers) -> Estimate:
        """What is believed of some rows, exactly."""
        return self.of(self.prior.points(rows))

    def of(self, points: Points) -> Estimate:
        """What is believed of some points, exactly; their jobs must be among those of the kinship."""
        explained = self.prior.covariance_of(points, self.seen, self.kinship) @ self.root.T
        variance = _variance(points) - np.square(explained).sum(axis=1)
        mean = points.log_predicted + explained @ self.whitened
        return Estimate(mean=mean, variance=np.maximum(variance, 0.0))  # rounding may leave an observed row below 0

    def shared_variance(self, rows: Integers) -> float:
        """Mean covariance of two different rows, which says nothing of their order; 0 of one row alone."""
        if len(rows) < 2:
            return 0.0
        points = self.prior.points(rows)
        explained = self.prior.covariance_of(points, self.seen, self.kinship) @ self.root.T
        covariance = self.prior.covariance_of(points, points, self.kinship) - explained @ explained.T
        return float((covariance.sum() - np.trace(covariance)) / (len(rows) * (len(rows) - 1)))

    def approximately(self) -> Estimate:
        """What is believed of every row if no two rows shared a residual: cheap for a million rows."""
        prior = self.prior
        explained = self.root @ _of_the_table(self.seen, self.kinship)
        factors = prior.deviations * (explained.T @ self.whitened)
        covariance = np.outer(prior.deviations, prior.deviations) * (np.eye(factors.size) - explained.T @ explained)
        mean, variance = prior.log_predicted.copy(), np.full(prior.log_predicted.shape, np.square(prior.residual))
        for start in range(0, len(mean), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            shares = prior.shares[chunk]
            mean[chunk] += shares @ factors
            variance[chunk] += np.einsum("ij,ij->i", shares @ covariance, shares)
        return Estimate(mean=mean, variance=variance)


def condition(
    prior: Prior, rows: Integers, log_observed: Floats, noise_variance: Floats, related: Related | None = None
) -> Posterior:
    """The belief after the log quantity of some points was observed, each with its own noise; points may repeat.

    Args:
        prior: The belief before.
        rows: Those of the table that were observed.
        log_observed: One for each row, then one for each related point.
        noise_variance: The same.
        related: Points of other jobs that were observed.
    """
    seen = prior.seen(rows, related)
    covariance = prior.covariance_of(seen.points, seen.points, seen.kinship) + np.diag(noise_variance)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    whitened = root @ (log_observed - seen.points.log_predicted)
    return Posterior(prior=prior, seen=seen.points, kinship=seen.kinship, root=root, whitened=whitened)


def _of_factors(left: Points, right: Points, kinship: Kinship) -> Floats:
    """Covariance by the factors alone, shape (left, right)."""
    if not left.jobs.any():  # most often: rows of the table with what was seen
        return left.loads @ _of_the_table(right, kinship).T
    shared = kinship.factors[:, left.jobs[:, None], right.jobs]
    covariance: Floats = np.einsum("if,jf,fij->ij", left.loads, right.loads, shared)
    return covariance


def _of_the_table(points: Points, kinship: Kinship) -> Floats:
    """What the factors of the table's job move at each point, shape (points, factors)."""
    loads: Floats = points.loads * kinship.factors[:, 0, points.jobs].T
    return loads


def _variance(points: Points) -> Floats:
    variance: Floats = np.square(points.loads).sum(axis=1) + np.square(points.residual)
    return variance
