"""Factors: correction factors of the parts of a step, learnt from past trials for a job that is predicted.

The step time of a trial is the sum of its parts, each times its own factor, times the common factor, times an error of
the trial itself. If the parts of a run were measured, each part is a separate observation, so that a long part does not
change the factors of others. A run with only a total is one observation of the sum. The factors of two jobs are
correlated as ``TaskSimilarity`` states, so that one regression contains all jobs (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, section 2.1). The sum is not linear in the factors' logarithms. It is linearised
at the current estimate of the factors, and this is repeated a few times (Gauss-Newton).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import BF16_ON_CORES, BF16_PARTS, Job
from autotuner.core.layout import Layout
from autotuner.core.trial import PastTrial
from autotuner.costmodel.evidence import Where
from autotuner.costmodel.predict import predict
from autotuner.costmodel.shared.low_precision import is_bf16_on_cores
from autotuner.costmodel.uncertainty import PARTS, TRUST, cluster_deviation, interval_error, part_deviations
from autotuner.search.explain.step_parts import measured_fields
from autotuner.search.sampler.gaussian_model import COMMON, TaskSimilarity, student_noise

FACTORS = (*PARTS, BF16_ON_CORES, COMMON)
"""Names of the factors of a job, in the order of all arrays of this module."""

_IN_BF16 = np.array([name in BF16_PARTS for name in PARTS])

_EMULATION, _EMULATION_MEASURED = 1.0, 0.3
"""Standard deviations of the logarithm of the factor for bf16 on CPU cores; both are assumptions. The second is used if
a profile of the machine measured the rate of bf16 products. A core that emulates bf16 takes about thirty times as long
as one with bf16 units."""


_ROUNDS = 4
"""Number of Gauss-Newton rounds, after which the factors move by less than a percent of their deviations."""

_BLUR = 0.002
"""Share of a step by which the boundary between two measured parts may be off: an assumption. A part that is predicted
to be shorter is observed together with the passes, and a measured part counts as at least this long."""

_SCATTER = np.array([TRUST[Where.HERE] * deviation for deviation in PARTS.values()])
"""Standard deviation of each part from run to run, in addition to that of the whole run: the deviation that is left
after a comparison of its formula with runs."""

_MOST_FOREIGN = 0.99
"""Largest share of the processors used by others that is distinguished. A run with a larger share gives as little
information as one with this share."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedRuns:
    """The measured times of one job's runs, and their predicted times on a typical cluster (without calibration).

    If the parts of a run were measured, each part is one observation. Otherwise the whole step is one observation.
    """

    step_time_s: Floats
    """Measured step time of each run."""
    parts_s: Floats
    """Predicted parts of each run, in the order of ``PARTS``: shape (runs, parts)."""
    bf16_on_cores: Booleans
    """True for runs on CPU cores whose products are in bf16."""
    runs: Integers
    """Index of the run to which each observation belongs."""
    sums: Booleans
    """True for the parts whose sum an observation is: shape (observations, parts)."""
    seconds: Floats
    """Measured seconds of each observation. The observations of a run sum to its step time, except for parts that are
    too short to be used."""
    own_variance: Floats
    """Variance of each observation's logarithm that no factor explains."""
    deviations: Floats
    """Prior deviations of the logarithms of the job's factors, in the order of ``FACTORS``."""

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.seconds)

    @classmethod
    def of(cls, job: Job, runs: Sequence[PastTrial]) -> TimedRuns:
        """Return the measured times of a job's runs with their predictions. Runs without a step time are left out.

        Args:
            job: The job, without a calibration.
            runs: The runs of the job.
        """
        kept, runs = _kept(job), [run for run in runs if run.step_time_s is not None]
        if missing := list(dict.fromkeys(run.layout for run in runs if run.layout not in kept)):
            kept.update(zip(missing, _predicted(job, missing), strict=True))
        predicted = [kept[run.layout] for run in runs]
        seen = [(number, *one) for number, run in enumerate(runs) for one in _observed(run, predicted[number])]
        numbers, sums, seconds, own_variance = zip(*seen, strict=True)
        return cls(
            step_time_s=np.array([run.step_time_s for run in runs], dtype=np.float64),
            parts_s=np.stack([one.parts_s for one in predicted]),
            bf16_on_cores=is_bf16_on_cores(LayoutColumns.from_layouts([run.layout for run in runs]), job),
            runs=np.array(numbers),
            sums=np.stack(sums),
            seconds=np.array(seconds),
            own_variance=np.array(own_variance),
            deviations=factor_deviations(job),
        )

    def linear(self, factors: Floats) -> tuple[Floats, Floats]:
        """Return a linear model of the observations' errors as a function of the factors, exact at the given factors.

        An error is the logarithm of the measured time divided by the predicted time.

        Args:
            factors: Logarithms of the factors, in units of their prior standard deviations.

        Returns:
            Two arrays. The first has the change of each observation per standard deviation of each factor: shape
            (observations, factors). The second has the error of each observation that the linear model gives if all log
            factors are 0.
        """
        logs = self.deviations * factors
        by_run_s = self.parts_s * np.exp(logs[:-2] + logs[-2] * self.bf16_on_cores[:, None] * _IN_BF16)
        parts_s = self.sums * by_run_s[self.runs]
        total_s = parts_s.sum(axis=1)
        shares = parts_s / total_s[:, None]
        in_bf16 = self.bf16_on_cores[self.runs] * (shares @ _IN_BF16)
        loads = np.column_stack([shares, in_bf16, np.ones(len(self))]) * self.deviations
        errors = np.log(self.seconds / total_s) - logs[-1]
        return loads, errors + loads @ factors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predicted:
    """The prediction of a layout for a typical cluster."""

    parts_s: Floats
    beyond: Floats
    """Variance of each part's factor about which runs of other layouts give no information."""
    residual: float
    """Variance of the error that no part explains."""


@lru_cache(maxsize=256)
def _kept(_: Job) -> dict[Layout, _Predicted]:
    """Return the cache of predictions of the job's layouts.

    It is used again, because many jobs learn from the same trials.
    """
    return {}


def _predicted(job: Job, layouts: Sequence[Layout]) -> Iterator[_Predicted]:
    x = LayoutColumns.from_layouts(layouts)
    step_time, said, known = predict(x, job).step_time, interval_error(x, job), part_deviations(job)
    parts_s = np.stack([getattr(step_time, name) for name in PARTS], axis=1)
    beyond = [np.maximum(np.square(said.parts[name]) - known[name] ** 2, 0.0) * np.ones(len(x)) for name in PARTS]
    for row in zip(parts_s, np.stack(beyond, axis=1), np.square(said.residual), strict=True):
        yield _Predicted(parts_s=row[0], beyond=row[1], residual=float(row[2]))


def _observed(run: PastTrial, predicted: _Predicted) -> Iterator[tuple[Booleans, float, float]]:
    """Yield ``sums``, ``seconds`` and ``own_variance`` of a run's measured parts.

    If the parts were not measured, yield those of the whole run.
    """
    # other processes may have slowed the run down by as much
    others = math.log1p(-min(run.foreign_share, _MOST_FOREIGN)) ** 2
    assert run.step_time_s is not None, "a run without a step time is left out before"
    measured = _measured_parts(run, predicted)
    for sums, share in measured:
        parts_s, variance = sums * predicted.parts_s, predicted.beyond
        if len(measured) > 1:
            variance = variance + np.square(_SCATTER)
        own = predicted.residual + float(np.square(parts_s / parts_s.sum()) @ variance) + others
        blur = _BLUR / share if len(measured) > 1 else 0.0
        yield sums, share * run.step_time_s, own + blur**2


def _measured_parts(run: PastTrial, predicted: _Predicted) -> list[tuple[Booleans, float]]:
    """Return the sets of parts that were measured separately, each with its share of the step."""
    rest, rest_share = np.ones(len(PARTS), dtype=bool), 1.0
    seconds = {} if run.parts is None else measured_fields(run.layout, run.parts)
    found = []
    for names, part_s in seconds.items():
        sums, share = np.isin(list(PARTS), names), part_s / sum(seconds.values())
        is_told = predicted.parts_s[sums].sum() >= _BLUR * predicted.parts_s.sum()
        if is_told and "matrix_s" not in names and share < rest_share - _BLUR:
            found.append((sums, max(share, _BLUR)))
            rest, rest_share = rest & ~sums, rest_share - share
    return [(rest, rest_share), *found]


def factor_deviations(job: Job) -> Floats:
    """Return the prior standard deviation of the logarithm of each correction factor, in the order of ``FACTORS``.

    A correction factor is the true time of a part of a step divided by its predicted time.
    """
    known, accelerator = part_deviations(job), job.cluster.accelerator
    emulation = _EMULATION_MEASURED if accelerator.peak_is_measured else _EMULATION
    emulation = emulation if accelerator.kind == "cpu" else 0.0
    return np.array([*(known[name] for name in PARTS), emulation, cluster_deviation(job)])


@dataclass(frozen=True, eq=False, kw_only=True)
class Factors:
    """The correction factors of one job, learnt from runs: true / predicted time, for each part of a step."""

    mean: Floats
    """Mean of each factor's logarithm, in units of its prior deviation."""
    covariance: Floats
    """Covariance of the factors' logarithms, in the same units."""
    parts_s: Floats
    """Parts of each run, as predicted for a typical cluster."""
    errors: Floats
    """Error of each run's prediction without learning."""
    left_out_errors: Floats
    """Error of each run after learning from all runs of other jobs."""
    left_out_deviations: Floats
    """Standard deviations of ``left_out_errors``."""
    jobs: Integers
    """Number of each run's job."""
    fitted_errors: Floats
    """Error of each run of the job itself, after learning from all runs."""
    fitted_deviations: Floats
    """Standard deviations of ``fitted_errors``."""

    @classmethod
    def after(cls, runs: Sequence[TimedRuns], numbers: Sequence[int], shared: TaskSimilarity) -> Factors:
        """Return the correction factors (true / predicted time) of a job, learnt from runs of this and other jobs.

        Args:
            runs: Runs by job; at least one job.
            numbers: For each element of ``runs``, the index of its job in ``shared``. The job to be predicted has index
                0.
            shared: Correlations between the factors of different jobs.
        """
        means = np.zeros((shared.factors.shape[1], shared.factors.shape[0]))
        for _ in range(_ROUNDS):
            line = _Line.of(runs, numbers, shared, means)
            means = line.means
        of_the_job = line.loads.T * shared.factors[:, 0, line.jobs]
        left_out_errors, left_out_deviations = line.left_out()
        fitted_errors, fitted_deviations = line.fitted(0)
        return cls(
            mean=means[0],
            covariance=np.eye(len(of_the_job)) - of_the_job @ line.inverse @ of_the_job.T,
            parts_s=np.concatenate([one.parts_s for one in runs]),
            errors=np.concatenate([np.log(one.step_time_s / one.parts_s.sum(axis=1)) for one in runs]),
            left_out_errors=left_out_errors,
            left_out_deviations=left_out_deviations,
            jobs=np.repeat(numbers, [len(one.step_time_s) for one in runs]),
            fitted_errors=fitted_errors,
            fitted_deviations=fitted_deviations,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Line:
    """Observations of all jobs, linearised: each error is a sum of shares times factors."""

    seconds: Floats
    """Measured seconds of each observation."""
    runs: Integers
    """Number of each observation's run among those of all jobs."""
    loads: Floats
    errors: Floats
    own_variance: Floats
    jobs: Integers
    """Number of each observation's job."""
    shared: TaskSimilarity
    noise: Floats
    """Variance with which each observation counts. It is increased for observations that are far off."""
    inverse: Floats
    """Inverse of the observations' covariance."""

    @classmethod
    def of(cls, runs: Sequence[TimedRuns], numbers: Sequence[int], shared: TaskSimilarity, means: Floats) -> _Line:
        """Return the observations, linearised at these means of the factors."""
        lines = [one.linear(means[number]) for one, number in zip(runs, numbers, strict=True)]
        loads, errors = (np.concatenate([line[side] for line in lines]) for side in (0, 1))
        jobs = np.concatenate([np.full(len(one), number) for one, number in zip(runs, numbers, strict=True)])
        own_variance = np.concatenate([one.own_variance for one in runs])
        firsts = np.cumsum([0, *(len(one.step_time_s) for one in runs)])
        covariance = np.einsum("if,jf,fij->ij", loads, loads, shared.factors[:, jobs[:, None], jobs])
        noise = student_noise(covariance, errors, own_variance)
        inverse = np.linalg.inv(covariance + np.diag(noise))
        return cls(
            seconds=np.concatenate([one.seconds for one in runs]),
            runs=np.concatenate([first + one.runs for first, one in zip(firsts, runs, strict=False)]),
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
        """Return the means of the factors of each job, shape (jobs, factors)."""
        weighted = self.loads * (self.inverse @ self.errors)[:, None]
        means: Floats = np.einsum("if,fji->jf", weighted, self.shared.factors[:, :, self.jobs])
        return means

    def left_out(self) -> tuple[Floats, Floats]:
        """Return every run's error after learning from all runs of other jobs, and the deviation of this error.

        Leave-one-out predictions are computed from blocks of the inverse covariance (Rasmussen and Williams 2006,
        5.4.2).
        """
        num_runs = int(self.runs[-1]) + 1
        errors, deviations = np.empty(num_runs), np.empty(num_runs)
        whitened = self.inverse @ self.errors
        for number in np.unique(self.jobs):
            block = np.flatnonzero(self.jobs == number)
            covariance = np.asarray(np.linalg.inv(self.inverse[np.ix_(block, block)]), dtype=np.float64)
            shared = covariance - np.diag(self.noise[block])
            for run, error, deviation in self._by_run(block, covariance @ whitened[block], shared):
                errors[run], deviations[run] = error, deviation
        return errors, deviations

    def fitted(self, number: int) -> tuple[Floats, Floats]:
        """Return the errors of a job's runs that are left after learning from all runs, and their deviations."""
        block = np.flatnonzero(self.jobs == number)
        off = self.noise * (self.inverse @ self.errors)
        shared = np.diag(self.noise) - self.noise[:, None] * self.inverse * self.noise
        found = list(self._by_run(block, off[block], shared[np.ix_(block, block)]))
        return np.array([error for _, error, _ in found]), np.array([deviation for *_, deviation in found])

    def _by_run(self, block: Integers, off: Floats, shared: Floats) -> Iterator[tuple[int, float, float]]:
        """Yield the number, the error and the deviation of each whole run in a block of observations.

        Args:
            block: Numbers of the observations.
            off: Error of each of them.
            shared: Covariance of the observations by their factors.
        """
        for run in np.unique(self.runs[block]):
            own = np.flatnonzero(self.runs[block] == run)
            seconds = self.seconds[block[own]]
            expected_s = seconds * np.exp(-off[own])
            weights = expected_s / expected_s.sum()
            common = max(float(weights @ shared[np.ix_(own, own)] @ weights), 0.0)
            deviation = math.sqrt(common + float(np.square(weights) @ self.own_variance[block[own]]))
            yield int(run), math.log(seconds.sum() / expected_s.sum()), deviation
