"""What a few observed layouts say about all others: a Gaussian belief about the log of some quantity of every row.

The error of row x is log(true / predicted) = sum over factors of share(x) * factor + residual(x). The factors (the log
efficiency of matrix products, of tensor communication, ...) are the same for every layout, so one measurement teaches
about all rows in proportion to what they spend on the same parts. The residual is what no part explains; layouts that
differ in little share most of it. Conditioning is exact (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, equations 2.23 and 2.24) and never forms a matrix of rows x rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Floats, Integers, LayoutColumns
from autotuner.search.sampler.layout_kernel import similarity

__all__ = ["Estimate", "Posterior", "Prior", "condition"]

_CHUNK = 1 << 16
"""Rows worked on at once where all rows are needed: temporaries stay within a few megabytes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """A log quantity of some rows: normal, with these means and variances."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Prior:
    """What is believed before any trial.

    Attributes:
        layouts: One per row.
        log_predicted: Mean of the log quantity, by row.
        shares: What each factor moves in each row, shape (rows, factors).
        deviations: Standard deviation of each factor.
        residual: Standard deviation of what the factors do not explain.
        residual_correlation: Part of the residual's variance that like layouts share; the rest is a layout's own.
    """

    layouts: LayoutColumns
    log_predicted: Floats
    shares: Floats
    deviations: Floats
    residual: float
    residual_correlation: float

    def covariance(self, left: Integers, right: Integers) -> Floats:
        """Of the errors of some rows with those of others, shape (left, right)."""
        alike = similarity(self.layouts.take(left), self.layouts.take(right))
        residual = self.residual**2 * np.where(alike == 1.0, 1.0, self.residual_correlation * alike)
        shared: Floats = (self.shares[left] * self.deviations**2) @ self.shares[right].T
        return shared + residual

    def variance(self, rows: Integers) -> Floats:
        """Of the errors of some rows."""
        variance: Floats = np.square(self.shares[rows]) @ self.deviations**2 + self.residual**2
        return variance


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """The belief after some rows were observed.

    Attributes:
        rows: Those observed.
        root: Inverse of the Cholesky factor of the observations' covariance.
        whitened: Errors of the observed predictions, made independent and of variance 1 by ``root``.
    """

    prior: Prior
    rows: Integers
    root: Floats
    whitened: Floats

    @property
    def surprise(self) -> float:
        """Sum of squared whitened errors: one per observation where the prior claims the right precision."""
        return float(self.whitened @ self.whitened)

    def at(self, rows: Integers) -> Estimate:
        """What is believed of some rows, exactly."""
        explained = self.prior.covariance(rows, self.rows) @ self.root.T
        variance = self.prior.variance(rows) - np.square(explained).sum(axis=1)
        mean = self.prior.log_predicted[rows] + explained @ self.whitened
        return Estimate(mean=mean, variance=np.maximum(variance, 0.0))  # rounding may leave an observed row below 0

    def approximately(self) -> Estimate:
        """What is believed of every row if no two rows shared a residual: cheap for a million rows."""
        prior = self.prior
        explained = self.root @ (prior.shares[self.rows] * prior.deviations)
        factors = prior.deviations * (explained.T @ self.whitened)
        covariance = np.outer(prior.deviations, prior.deviations) * (np.eye(factors.size) - explained.T @ explained)
        mean, variance = prior.log_predicted.copy(), np.full(prior.log_predicted.shape, prior.residual**2)
        for start in range(0, len(mean), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            shares = prior.shares[chunk]
            mean[chunk] += shares @ factors
            variance[chunk] += np.einsum("ij,ij->i", shares @ covariance, shares)
        return Estimate(mean=mean, variance=variance)


def condition(prior: Prior, rows: Integers, log_observed: Floats, noise_variance: Floats) -> Posterior:
    """The belief after the log quantity of some rows was observed, each with its own noise; rows may repeat."""
    covariance = prior.covariance(rows, rows) + np.diag(noise_variance)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    return Posterior(prior=prior, rows=rows, root=root, whitened=root @ (log_observed - prior.log_predicted[rows]))
