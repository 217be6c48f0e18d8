"""Calibration: corrects a job's predictions by measured runs on its cluster.

The prior of the factor's logarithm is normal. Each run observes it with an error, which combines the errors of the
run's parts and its residual. The posterior is that of a mean of observations with known deviations (Murphy, Conjugate
Bayesian analysis of the Gaussian distribution, 2007, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Calibration, Job
from autotuner.costmodel.predict import predict
from autotuner.costmodel.uncertainty import cluster_deviation, interval_error, log_variance


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredRuns:
    """Measured runs of one job: the layout and the measured step time of each run."""

    job: Job
    """Job of the runs. Its model, number of ranks and workload may differ from those of the job to calibrate; its
    cluster and software are the same."""
    layouts: LayoutColumns
    step_time_s: Floats
    """Measured step time of each layout."""


def calibrated(job: Job, runs: Iterable[MeasuredRuns]) -> Job:
    """Return the job with a calibration that combines its earlier calibration, if any, with these measured runs.

    The calibration is a factor, with an uncertainty, by which predicted step times are multiplied. Without runs the job
    stays as it is.
    """
    errors, variances = _errors([some for some in runs if len(some.step_time_s)])
    if not errors.size:
        return job
    before = job.calibration
    mean, deviation = (math.log(before.factor), before.deviation) if before else (0.0, cluster_deviation(job))
    precision = deviation**-2 + float(np.sum(1 / variances))
    mean = (mean * deviation**-2 + float(np.sum(errors / variances))) / precision
    known = Calibration(factor=math.exp(mean), deviation=precision**-0.5, num_runs=errors.size)
    return replace(job, calibration=_counted_with(known, before))


def calibrated_by_both(job: Job, other: Calibration | None) -> Job:
    """Return the job with one calibration that combines its own calibration with one from other runs on its cluster.

    Args:
        job: Job, with or without a calibration of its own.
        other: Calibration from runs that the job's own calibration has not seen. None: the job's own calibration stays.
    """
    own = job.calibration
    if own is None or other is None:
        return replace(job, calibration=own or other)
    # the prior is in both calibrations, and must count once
    typical = cluster_deviation(replace(job, calibration=None)) ** -2
    precisions = [own.deviation**-2, other.deviation**-2]
    precision = max(sum(precisions) - typical, *precisions)
    mean = sum(p * math.log(c.factor) for p, c in zip(precisions, (own, other), strict=True)) / precision
    detailed = own if own.parts else other  # runs that a caller sent have only the time of the whole step
    known = replace(
        own,
        factor=math.exp(mean),
        deviation=precision**-0.5,
        parts=detailed.parts,
        correlations=detailed.correlations,
        interval_scale=detailed.interval_scale,
    )
    return replace(job, calibration=_counted_with(known, other))


def _counted_with(known: Calibration, before: Calibration | None) -> Calibration:
    """Return the calibration with counts of all runs that it is based on, including those of an earlier calibration."""
    if before is None:
        return known
    return replace(
        known,
        num_runs=known.num_runs + before.num_runs,
        num_trials=known.num_trials + before.num_trials,
        num_sweeps=known.num_sweeps + before.num_sweeps,
    )


def _errors(runs: list[MeasuredRuns]) -> tuple[Floats, Floats]:
    """Return log(measured / predicted) of every run and its variance.

    The prediction is for a typical cluster; the variance is what remains once the speed of the cluster is known.
    """
    pairs = [_of_typical(some) for some in runs]
    errors, variances = ([pair[side] for pair in pairs] for side in (0, 1))
    return np.concatenate([np.empty(0), *errors]), np.concatenate([np.empty(0), *variances])


def _of_typical(runs: MeasuredRuns) -> tuple[Floats, Floats]:
    job = replace(runs.job, calibration=None)
    step_time = predict(runs.layouts, job).step_time
    error = replace(interval_error(runs.layouts, job), common=0.0)
    return np.log(runs.step_time_s / step_time.total_s), log_variance(step_time, error)
