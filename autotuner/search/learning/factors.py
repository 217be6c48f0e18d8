"""What past trials teach about the factors behind step times: those of a job that is to be predicted.

A trial takes the sum of its parts, each times a factor of its own, times the common one, times what is the trial's own.
The factors of two jobs are as near to each other as their ``Kinship`` says, so that one regression holds them all
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.1). The sum is no line in the factors'
logarithms; it is made one where the factors are believed to be, a few times over (Gauss and Newton).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotuner.costmodel.columns import Floats, Integers, LayoutColumns
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import PARTS, cluster_deviation, interval_error, part_deviations, part_shares
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.search.sampler.posterior import Kinship
from autotuner.search.sampler.robust import believed_noise

__all__ = ["Factors", "TimedRuns", "factor_deviations"]


_ROUNDS = 4
"""In which the factors move by less than a percent of their deviations in the last."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedRuns:
    """Step times of one job beside their predictions for a typical cluster.

    Attributes:
        step_time_s: Measured.
        parts_s: Predicted, by the order of ``PARTS``: shape (runs, parts).
        own_variance: Of what no factor explains, in logarithms.
        deviations: Of the logarithms of the job's factors beforehand, the common one last.
    """

    step_time_s: Floats
    parts_s: Floats
    own_variance: Floats
    deviations: Floats

    def __len__(self) -> int:
        return len(self.step_time_s)

    @classmethod
    def of(cls, job: Job, layouts: Sequence[Layout], step_time_s: Sequence[float]) -> TimedRuns:
        """The runs of a job that is not calibrated."""
        kept = _kept(job)
        if missing := [layout for layout in layouts if layout not in kept]:
            kept.update(zip(missing, _predicted(job, missing), strict=True))
        rows = np.stack([kept[layout] for layout in layouts])
        return cls(
            step_time_s=np.array(step_time_s),
            parts_s=rows[:, :-1],
            own_variance=rows[:, -1],
            deviations=factor_deviations(job),
        )

    @property
    def shares(self) -> Floats:
        """Of the parts in each step as predicted, shape (runs, parts)."""
        shares: Floats = self.parts_s / self.parts_s.sum(axis=1, keepdims=True)
        return shares

    def linear(self, factors: Floats) -> tuple[Floats, Floats]:
        """What a standard deviation of each factor moves in each run, and how far each is off, both where these are.

        Args:
            factors: In standard deviations; the errors are those that a line through this place has at 0.
        """
        parts_s = self.parts_s * np.exp(self.deviations[:-1] * factors[:-1])
        total_s = parts_s.sum(axis=1)
        loads = np.column_stack([parts_s / total_s[:, None], np.ones(len(self))]) * self.deviations
        errors = np.log(self.step_time_s / total_s) - self.deviations[-1] * factors[-1]
        return loads, errors + loads @ factors


@lru_cache(maxsize=256)
def _kept(_: Job) -> dict[Layout, Floats]:
    """What was predicted of the job's layouts: the same trials teach each of the jobs that are asked about."""
    return {}


def _predicted(job: Job, layouts: Sequence[Layout]) -> Floats:
    """Seconds of each part of each layout, and last the variance of what no factor explains."""
    x = LayoutColumns.from_layouts(layouts)
    step_time, said, known = predict(x, job).step_time, interval_error(x, job), part_deviations(job)
    beyond = [np.maximum(np.square(said.parts[name]) - known[name] ** 2, 0.0) * np.ones(len(x)) for name in PARTS]
    own = (np.square(part_shares(step_time, said)) * np.stack(beyond, axis=1)).sum(axis=1)
    return np.column_stack([*(getattr(step_time, name) for name in PARTS), np.square(said.residual) + own])


def factor_deviations(job: Job) -> Floats:
    """The deviation of each factor's logarithm before any trial, the common one last."""
    known = part_deviations(job)
    return np.array([*(known[name] for name in PARTS), cluster_deviation(job)])


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors:
    """The factors of one job after the runs of others, or of its own; made by ``after``.

    Attributes:
        mean: Of each factor, in units of its deviation beforehand.
        covariance: Of the factors, in the same units.
        shares: Of the parts in the runs' steps, in the mean.
        errors: Of each run, where nothing was learnt.
        left_out_errors: Of each run, where all runs of other jobs were learnt from.
        left_out_deviations: By how much these might be off.
        jobs: Number of each run's job.
    """

    mean: Floats
    covariance: Floats
    shares: Floats
    errors: Floats
    left_out_errors: Floats
    left_out_deviations: Floats
    jobs: Integers

    @classmethod
    def after(cls, runs: Sequence[TimedRuns], numbers: Sequence[int], shared: Kinship) -> Factors:
        """What is believed after these runs.

        Args:
            runs: By job, at least one.
            numbers: Number of each of these jobs in the kinship, where 0 is the one that is to be predicted.
            shared: What the jobs share.
        """
        means = np.zeros((shared.factors.shape[1], shared.factors.shape[0]))
        for _ in range(_ROUNDS):
            line = _Line.of(runs, numbers, shared, means)
            means = line.means
        of_the_job = line.loads.T * shared.factors[:, 0, line.jobs]
        left_out_errors, left_out_deviations = line.left_out()
        return cls(
            mean=means[0],
            covariance=np.eye(len(of_the_job)) - of_the_job @ line.inverse @ of_the_job.T,
            shares=np.concatenate([one.shares for one in runs]).mean(axis=0),
            errors=np.concatenate([np.log(one.step_time_s / one.parts_s.sum(axis=1)) for one in runs]),
            left_out_errors=left_out_errors,
            left_out_deviations=left_out_deviations,
            jobs=line.jobs,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Line:
    """Runs of all jobs as if their errors were sums of shares times factors.

    Attributes:
        noise: Variance by which each run counts: more than its own where it went wrong.
        inverse: Of the runs' covariance.
    """

    loads: Floats
    errors: Floats
    own_variance: Floats
    jobs: Integers
    shared: Kinship
    noise: Floats
    inverse: Floats

    @classmethod
    def of(cls, runs: Sequence[TimedRuns], numbers: Sequence[int], shared: Kinship, means: Floats) -> _Line:
        """Where the factors of each job are these."""
        lines = [one.linear(means[number]) for one, number in zip(runs, numbers, strict=True)]
        loads, errors = (np.concatenate([line[side] for line in lines]) for side in (0, 1))
        jobs = np.concatenate([np.full(len(one), number) for one, number in zip(runs, numbers, strict=True)])
        own_variance = np.concatenate([one.own_variance for one in runs])
        covariance = np.einsum("if,jf,fij->ij", loads, loads, shared.factors[:, jobs[:, None], jobs])
        noise = believed_noise(covariance, errors, own_variance)
        inverse = np.linalg.inv(covariance + np.diag(noise))
        return cls(
            loads=loads,
            errors=errors,
            own_variance=own_variance,
            jobs=jobs,
            shared=shared,
            noise=noise,
            inverse=np.asarray(inverse, dtype=np.float64),
        )

    @property
    def means(self) -> Floats:
        """Of the factors of each job, shape (jobs, factors)."""
        weighted = self.loads * (self.inverse @ self.errors)[:, None]
        means: Floats = np.einsum("if,fji->jf", weighted, self.shared.factors[:, :, self.jobs])
        return means

    def left_out(self) -> tuple[Floats, Floats]:
        """Of every run: its error beside what all runs of other jobs say, and by how much that might be off.

        Blocks of the inverse covariance are what leaving the block out leaves (Rasmussen and Williams 2006, 5.4.2).
        """
        errors, deviations = np.empty(len(self.errors)), np.empty(len(self.errors))
        whitened = self.inverse @ self.errors
        for number in np.unique(self.jobs):
            block = np.flatnonzero(self.jobs == number)
            covariance = np.linalg.inv(self.inverse[np.ix_(block, block)])
            errors[block] = covariance @ whitened[block]
            common = np.maximum(np.diag(covariance) - self.noise[block], 0.0)
            deviations[block] = np.sqrt(common + self.own_variance[block])
        return errors, deviations
