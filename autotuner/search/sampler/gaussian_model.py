"""Gaussian model of a log quantity (step time, peak memory) of many layouts, over one or several tasks.

The error of a layout is ``log(true / predicted) = shares @ factors + residual``. The factors (log efficiency of matrix
products, of tensor communication, ...) are common to all layouts of a task, so that one measurement gives information
about every layout, in proportion to the time that the layout spends on the same parts. Similar layouts share most of
their residual. A task is a job with its software and hardware: the job of the sweep, a proxy of it, or a past job.
Tasks share factors and residuals as far as ``TaskSimilarity`` says (an intrinsic coregionalization model), so a trial
of the very job is an ordinary observation.

Conditioning is exact (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.23 and 2.24;
sums and products of kernels: section 4.2.4). No matrix of rows x rows is formed.

Shapes: R rows of the table, P points, F factors, T tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns, concatenate
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS

COMMON = "common"
"""Name of the factor that all step times of a job or a cluster share, in addition to the factors of parts."""

_CHUNK_ROWS = 1 << 16  # temporaries stay within a few megabytes

_LENGTH_SCALE = 2.0
"""Distance between layouts at which their similarity is 1 / e. Replays of published sweeps give nearly equal results
for 1 to 16 (docs/explanation/sampler.md)."""

_DEGREES_OF_FREEDOM = 2.0
"""Degrees of freedom of the Student-t noise. Runs on a broken network are further off than normal errors are, and half
of a sheet's runs may be such. Replays of published tables do not distinguish 1 from 4
(docs/explanation/learning.md)."""

_EM_ROUNDS = 10  # then no factor moves by 1 % of its deviation

_COLUMNS = ("log_predicted", "loads", "residual", "tasks")
"""Fields of ``Points`` other than the layouts."""


# ---------------------------------------------------------------- tasks
@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Correlations between tasks (jobs with their trainers): how far an error in one task holds for another."""

    factor: float
    """Correlation of the same factor in two tasks."""
    residual: float
    """Correlation of the residuals of a layout and of its proxy."""
    elsewhere: float
    """Factor on both correlations, applied once for each of accelerator, links and software that differ."""


TIME_TRANSFER = Transfer(factor=0.95, residual=0.7, elsewhere=0.5)
"""Correlations for step times. They make published large runs most probable after small ones, with equal weight for
each source. With any one source left out, the others give 0.95 for the factors and 0.6 to 0.8 for the residuals,
whatever the ranks, width, depth or length of sequences between the two are (``python -m research.small_for_large
--learn``, docs/explanation/proxy-trials.md). ``elsewhere`` is an assumption."""

MEMORY_TRANSFER = Transfer(factor=1.0, residual=0.7, elsewhere=0.5)
"""Correlations for peak memory: an assumption. Replays of the one table that reports out-of-memory runs do not
distinguish 0 from 1."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskSimilarity:
    """Correlations between the prediction errors of tasks. A task is a job with the trainer that runs it.

    The job whose layouts are searched is task 0.
    """

    factors: Floats
    """Correlations of each factor between tasks, of shape (F, T, T)."""
    residual: Floats
    """Correlations of the residuals between tasks, of shape (T, T)."""

    @classmethod
    def of_one_task(cls, num_factors: int) -> TaskSimilarity:
        """Return the correlations for a search with trials of a single task (a job with its trainer): all are 1."""
        return cls(factors=np.ones((num_factors, 1, 1)), residual=np.ones((1, 1)))

    @classmethod
    def between(
        cls, jobs: Sequence[Job], factors: Iterable[str], transfer: Transfer, trainers: Sequence[str | None] = ()
    ) -> TaskSimilarity:
        """Return the correlations of prediction errors between several tasks. A task is a job with its trainer.

        Args:
            jobs: The job of each task. The first one is the job whose layouts are searched.
            factors: Names of the factors whose errors are correlated: fields of ``StepTime`` or ``Memory``, or
                ``COMMON`` for the factor of all parts.
            transfer: Correlations for step times, or for memory peaks.
            trainers: Name of the trainer of each task, None for the product's own training code. Empty: all tasks have
                the same trainer.
        """
        tasks = list(zip(jobs, trainers or [None] * len(jobs), strict=True))
        device = _equal([job.cluster.accelerator.name for job in jobs], transfer.elsewhere)
        links = _equal([_links(job) for job in jobs], transfer.elsewhere)
        stack = _equal([(job.stack.name, trainer) for job, trainer in tasks], transfer.elsewhere)
        factor, residual = (_equal(tasks, other) for other in (transfer.factor, transfer.residual))

        def hardware(name: str) -> Floats | float:
            if name == COMMON:
                return device * links
            if name.endswith("communication_s"):
                return links
            return device if name.endswith("_s") else 1.0  # memory does not depend on speed

        return cls(
            factors=np.stack([factor * (hardware(name) * stack) for name in factors]),
            residual=residual * device * links * stack,
        )


def has_same_hardware(one: Job, other: Job) -> bool:
    """Return whether two jobs run on the same accelerators and links, so that one speed factor describes both."""
    same_device = one.cluster.accelerator.name == other.cluster.accelerator.name
    return same_device and _links(one) == _links(other)


def _links(job: Job) -> tuple[object, ...]:
    cluster = job.cluster
    return cluster.intra_node_link.name, cluster.inter_node_link.name, cluster.oversubscription


def _equal(values: Sequence[object], otherwise: float) -> Floats:
    """Return a matrix with 1 where two values are equal and the fraction elsewhere, which is a valid kernel."""
    return np.array([[1.0 if one == other else otherwise for other in values] for one in values])


# ---------------------------------------------------------------- model
@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """Mean and variance of a log quantity (step time or peak memory) of some layouts, as normal distributions."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Layouts as inputs of the Gaussian model: for each, its log prediction, the effect of each factor, and its task.

    A task is a job with the trainer that runs it.
    """

    layouts: LayoutColumns
    """Layouts of the job that is searched. For a point of another task, the layout for which the point is a proxy."""
    log_predicted: Floats
    """Mean of the logarithm of the quantity."""
    loads: Floats
    """Change of the logarithm by one standard deviation of each factor, shape (P, F)."""
    residual: Floats
    """Standard deviation of the error that no factor explains."""
    tasks: Integers
    """Index of the task of each point in the ``TaskSimilarity``."""

    def __len__(self) -> int:
        return len(self.log_predicted)

    @property
    def variance(self) -> Floats:
        """Prior variance of the modelled log quantity (step time or peak memory) at each point (layout of a task)."""
        variance: Floats = np.square(self.loads).sum(axis=1) + np.square(self.residual)
        return variance

    def take(self, index: Integers) -> Points:
        """Return the points at these indices, in the order of ``index``."""
        return Points(layouts=self.layouts.take(index), **{name: getattr(self, name)[index] for name in _COLUMNS})

    @classmethod
    def concatenate(cls, some: Sequence[Points]) -> Points:
        """Return one set with the points of all given sets, in their order."""
        columns = {name: np.concatenate([getattr(one, name) for one in some]) for name in _COLUMNS}
        return cls(layouts=concatenate([one.layouts for one in some]), **columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Related:
    """Points of several tasks (layouts of jobs with their trainers), with the correlations between these tasks."""

    points: Points
    similarity: TaskSimilarity

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: Integers) -> Related:
        """Return the points at these indices. The correlations between their tasks stay the same.

        A task is a job with the trainer that runs it.

        Args:
            index: Indices of the points.
        """
        return Related(points=self.points.take(index), similarity=self.similarity)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prior:
    """The prior of the Gaussian model: a normal distribution for each layout of a table, as it is before any trial.

    The modelled quantity is the logarithm of the step time or of the peak memory.
    """

    layouts: LayoutColumns
    log_predicted: Floats
    shares: Floats
    """Weight of each factor in each row, shape (R, F)."""
    deviations: Floats
    """Standard deviation of each factor."""
    residual: float | Floats
    """Standard deviation of the error that no factor explains, for all rows or for each row."""
    residual_correlation: float
    """Share of the residual variance that similar layouts have in common."""

    def points(self, rows: Integers) -> Points:
        """Return some layouts of the table as points (inputs of the Gaussian model) of task 0, the searched job.

        Args:
            rows: Indices of the layouts in the table.
        """
        return Points(
            layouts=self.layouts.take(rows),
            log_predicted=self.log_predicted[rows],
            loads=self.shares[rows] * self.deviations,
            residual=np.broadcast_to(self.residual, self.log_predicted.shape)[rows].astype(np.float64),
            tasks=np.zeros(len(rows), dtype=np.int64),
        )

    def seen(self, rows: Integers, related: Related | None) -> Related:
        """Return some layouts of the table as points (inputs of the Gaussian model), then the points of other tasks.

        Args:
            rows: Indices of the layouts in the table.
            related: Points of other tasks (jobs with their trainers); None: there are none.
        """
        own = self.points(rows)
        if related is None:
            return Related(points=own, similarity=TaskSimilarity.of_one_task(self.deviations.size))
        return Related(points=Points.concatenate([own, related.points]), similarity=related.similarity)

    def covariance(self, left: Points, right: Points, similarity: TaskSimilarity | None = None) -> Floats:
        """Return the prior covariance between the prediction errors of two sets of points: shape (left, right).

        A point is a layout in a task (a job with its trainer).

        Args:
            left: The first set of points.
            right: The second set of points.
            similarity: Similarity of the tasks of the points; None: all points belong to task 0, the job that is
                searched.
        """
        similarity = similarity or TaskSimilarity.of_one_task(self.deviations.size)
        alike = layout_similarity(left.layouts, right.layouts)
        alike = np.where(alike == 1.0, 1.0, self.residual_correlation * alike)
        residual = similarity.residual[np.ix_(left.tasks, right.tasks)] * left.residual[:, None] * right.residual
        factors: Floats
        if left.tasks.any():
            shared = similarity.factors[:, left.tasks[:, None], right.tasks]
            factors = np.einsum("if,jf,fij->ij", left.loads, right.loads, shared)
        else:  # in the usual case this is much faster
            factors = left.loads @ _loads_of_table(right, similarity).T
        return factors + residual * alike


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """The posterior of the Gaussian model: a normal distribution for each layout, after some layouts were measured.

    The modelled quantity is the logarithm of the step time or of the peak memory.
    """

    prior: Prior
    seen: Points
    similarity: TaskSimilarity
    root: Floats
    """Inverse of the Cholesky factor of the observations' covariance."""
    whitened: Floats
    """Errors of the predictions of the observations, transformed to be independent with variance 1."""

    @property
    def surprise(self) -> float:
        """Sum of squared prediction errors, each divided by its standard deviation, after correlations are removed.

        If the prior is right, the expected sum is the number of observations.
        """
        return float(self.whitened @ self.whitened)

    def at(self, points: Points | Integers) -> Estimate:
        """Return the exact mean and variance of the modelled log quantity (step time or peak memory) of some layouts.

        Args:
            points: Indices of layouts in the table, or points of tasks (jobs with their trainers) that the model knows.
        """
        points = points if isinstance(points, Points) else self.prior.points(points)
        explained = self._explained(points)
        variance = points.variance - np.square(explained).sum(axis=1)  # rounding may leave an observed point below 0
        return Estimate(mean=points.log_predicted + explained @ self.whitened, variance=np.maximum(variance, 0.0))

    def shared_variance(self, rows: Integers) -> float:
        """Return the part of the variance that all these layouts have in common: the mean covariance of two of them.

        An error that is common to all layouts does not change their order. The result is 0 for a single layout.

        Args:
            rows: Indices of the layouts in the table.
        """
        if len(rows) < 2:
            return 0.0
        points = self.prior.points(rows)
        explained = self._explained(points)
        covariance = self.prior.covariance(points, points, self.similarity) - explained @ explained.T
        return float((covariance.sum() - np.trace(covariance)) / (len(rows) * (len(rows) - 1)))

    def at_all_rows(self) -> Estimate:
        """Return the approximate mean and variance for each layout of the table; fast enough for a million layouts.

        The approximation ignores that similar layouts have similar residual errors.
        """
        prior = self.prior
        explained = self.root @ _loads_of_table(self.seen, self.similarity)
        factors = prior.deviations * (explained.T @ self.whitened)
        covariance = np.outer(prior.deviations, prior.deviations) * (np.eye(factors.size) - explained.T @ explained)
        mean, variance = prior.log_predicted.copy(), np.full(prior.log_predicted.shape, np.square(prior.residual))
        for start in range(0, len(mean), _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            shares = prior.shares[chunk]
            mean[chunk] += shares @ factors
            variance[chunk] += np.einsum("ij,ij->i", shares @ covariance, shares)
        return Estimate(mean=mean, variance=variance)

    def _explained(self, points: Points) -> Floats:
        return self.prior.covariance(points, self.seen, self.similarity) @ self.root.T


def condition(
    prior: Prior, rows: Integers, log_observed: Floats, noise_variance: Floats, related: Related | None = None
) -> Posterior:
    """Return the posterior of the Gaussian model after some layouts were measured with independent noise.

    Args:
        prior: The prior, for every layout of the table.
        rows: Indices of the measured layouts in the table; an index may occur more than once.
        log_observed: Logarithms of the measured values: one for each of ``rows``, then one for each related point.
        noise_variance: Variance of the noise of each of these values.
        related: Points of other tasks (jobs with their trainers) that were measured; None: there are none.
    """
    seen = prior.seen(rows, related)
    covariance = prior.covariance(seen.points, seen.points, seen.similarity) + np.diag(noise_variance)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    whitened = root @ (log_observed - seen.points.log_predicted)
    return Posterior(prior=prior, seen=seen.points, similarity=seen.similarity, root=root, whitened=whitened)


def _loads_of_table(points: Points, similarity: TaskSimilarity) -> Floats:
    """Return the change at each point by the factors of task 0, shape (P, F)."""
    loads: Floats = points.loads * similarity.factors[:, 0, points.tasks].T
    return loads


# ---------------------------------------------------------------- kernels
def layout_similarity(left: LayoutColumns, right: LayoutColumns) -> Floats:
    """Return the similarity exp(-distance / length) of all pairs of layouts: shape (left, right).

    The similarity is 1 only for equal layouts. The distance adds up over the options: the number of doublings for a
    number above zero, the number of steps between two values of a number that may be zero, and 1 for any other option
    that differs. A product of exponential kernels, one per field, is a valid covariance (Rasmussen and Williams 2006,
    sections 4.2.1 and 4.2.4).
    """
    distance = np.zeros((len(left), len(right)))
    for name, option in OPTIONS.items():
        a, b = getattr(left, name)[:, None], getattr(right, name)[None, :]
        if not b.size or ((a == b[0, 0]).all() and (b == b[0, 0]).all()):
            continue  # most fields of a space never vary
        if not option.is_number:
            distance += a != b
        elif option.lowest == 0:
            step = option.offered[1] - option.offered[0] if option.offered else 1
            distance += np.abs(a - b) / step
        else:
            distance += np.abs(np.log2(a) - np.log2(b))
    return np.exp(distance / -_LENGTH_SCALE)


def student_noise(covariance: Floats, errors: Floats, own_variance: Floats, *, only_above: bool = False) -> Floats:
    """Return noise variances for a normal model in which outliers count less, as under Student-t noise.

    The variances are found by expectation maximisation (Lange, Little and Taylor 1989, Robust statistical modeling
    using the t distribution, section 3).

    Args:
        covariance: Covariance of the observations without their noise, shape (n, n).
        errors: Observed errors, of prior mean 0.
        own_variance: Variance of the noise of each observation in a run without a fault.
        only_above: Reduce only the weight of errors that are far above the others. A fault can slow a run down, but
            cannot make it faster.
    """
    lowest = 0.0 if only_above else -np.inf
    # use the median, because the mean would follow the outliers
    distance = np.square(np.maximum(errors - np.median(errors), lowest))
    for _ in range(_EM_ROUNDS):
        noise = own_variance * (_DEGREES_OF_FREEDOM + distance / own_variance) / (_DEGREES_OF_FREEDOM + 1)
        explained = np.linalg.solve(covariance + np.diag(noise), covariance)
        left = np.maximum(np.diag(covariance) - np.einsum("ij,ji->i", covariance, explained), 0.0)
        distance = np.square(np.maximum(errors - errors @ explained, lowest)) + left
    return noise
