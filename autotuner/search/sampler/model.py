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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotuner.core.columns import Floats, Integers, LayoutColumns, concatenate
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.option import OptionSpec
from autotuner.costmodel.uncertainty import PARTS

_LENGTH = 2.0
"""Steps of distance after which similarity has fallen to 1 / e. Replays of published sweeps hardly tell lengths of 1 to
16 apart (docs/sampler.md)."""


def similarity(left: LayoutColumns, right: LayoutColumns) -> Floats:
    """exp(-distance / length), shape (left, right); 1 for equal layouts only.

    The distance has one step for each doubling of a number, one for each unit of a number that may be zero (layers that
    an end gives away), and one for each choice that differs. A product of exponential kernels, one per field, is a
    valid covariance (Rasmussen and Williams 2006, sections 4.2.1 and 4.2.4).
    """
    distance = np.zeros((len(left), len(right)))
    for name, one in OPTIONS.items():
        ours, theirs = getattr(left, name)[:, None], getattr(right, name)[None, :]
        if _is_constant(ours, theirs):
            continue  # most fields of a space never vary
        distance += _steps(one, ours, theirs)
    return np.exp(distance / -_LENGTH)


def _steps(one: OptionSpec, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    steps: npt.NDArray[Any]
    if not one.is_number:
        steps = ours != theirs
    elif one.lowest == 0:
        steps = np.abs(ours - theirs)
    else:
        steps = np.abs(np.log2(ours) - np.log2(theirs))
    return steps


def _is_constant(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> bool:
    return not theirs.size or bool((ours == theirs[0, 0]).all() and (theirs == theirs[0, 0]).all())


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


COMMON = "common"
"""What the factor of all step times of a job or a cluster is called, beside those of parts."""

_BETWEEN_RANKS = tuple(name for name in PARTS if name.endswith("communication_s"))
"""Parts whose factor belongs to the links; those of all others belong to the accelerator, the common one to both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How much of what is known of one job carries over to another, as correlations.

    Attributes:
        factor: Of a factor of one job with the same factor of another.
        residual: Of the residual of a layout in one job with that of the layout in another for which it stands.
        elsewhere: What is left of either where accelerator, links or stack are others, for each of these.
    """

    factor: float
    residual: float
    elsewhere: float


TIME_REACH = Reach(factor=0.95, residual=0.7, elsewhere=0.5)
"""For step times. The first two make published large runs likeliest after small ones, each source weighing as much;
with any source left out, the others choose 0.95, and 0.6 to 0.8. The last is an assumption."""

MEMORY_REACH = Reach(factor=1.0, residual=0.7, elsewhere=0.5)
"""For peaks. An assumption: what a layer saves does not know how many replicas there are, and the residual is no better
known than that of times. Replays of the one table that says what ran out of memory do not tell 0 from 1."""


def kinship(
    jobs: Sequence[Job], factors: Iterable[str], reach: Reach, trainers: Sequence[str | None] | None = None
) -> Kinship:
    """What the jobs share, the first of them that of the table.

    Args:
        jobs: All different, or run by different trainers.
        factors: Names: parts of ``StepTime`` or of ``Memory``, or ``COMMON``.
        reach: Of times or of peaks.
        trainers: Name of the registered trainer that ran each job, None where our own decoder did; None: one ran all.
    """
    who = trainers or [None] * len(jobs)
    device, links = (_where_same([what(job) for job in jobs], reach.elsewhere) for what in (_device, _links))
    stack = _where_same([(_stack(job), trainer) for job, trainer in zip(jobs, who, strict=True)], reach.elsewhere)
    where = {name: stack * (links if name in _BETWEEN_RANKS else device) for name in PARTS} | {
        COMMON: device * links * stack
    }
    same = list(zip(jobs, who, strict=True))
    carried, residual = (_where_same(same, other) for other in (reach.factor, reach.residual))
    return Kinship(
        factors=np.stack([carried * where.get(name, stack) for name in factors]),
        residual=residual * device * links * stack,
    )


def is_same_hardware(one: Job, other: Job) -> bool:
    """Whether two jobs run on accelerators and links of one kind, so that one cluster factor is that of both."""
    return (_device(one), _links(one)) == (_device(other), _links(other))


def _where_same(values: Sequence[object], elsewhere: float) -> Floats:
    """1 where two jobs have the same, else what is left: a valid kernel for any fraction that is."""
    return np.array([[1.0 if one == other else elsewhere for other in values] for one in values])


def _device(job: Job) -> object:
    return job.cluster.accelerator.name


def _links(job: Job) -> object:
    cluster = job.cluster
    return cluster.intra_node_link.name, cluster.inter_node_link.name, cluster.oversubscription


def _stack(job: Job) -> object:
    return job.stack.name


_DEGREES_OF_FREEDOM = 2.0
"""Of the Student distribution of what no factor explains: a run on a broken network is further off than normal errors
are, and half of a sheet's runs may be. Replays of the published tables do not tell 1 from 4 (docs/learning.md)."""

_EM_ROUNDS = 10
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
    for _ in range(_EM_ROUNDS):
        noise = own_variance * (_DEGREES_OF_FREEDOM + distance / own_variance) / (_DEGREES_OF_FREEDOM + 1)
        explained = np.linalg.solve(covariance + np.diag(noise), covariance)
        left = np.maximum(np.diag(covariance) - np.einsum("ij,ji->i", covariance, explained), 0.0)
        distance = np.square(np.maximum(errors - errors @ explained, lowest)) + left
    return noise
