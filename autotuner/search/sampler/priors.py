"""Priors: the assumed distributions of step times and peak memory, from predictions and the trials so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.costmodel.memory.peak import MemoryColumns
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION, PARTS, LayoutErrors, TimeError, part_shares
from autotuner.search.sampler.gaussian_model import COMMON, Posterior, Prior, Related, condition, student_noise
from autotuner.search.sampler.normal import inverse_mills

TIME_FACTORS = (*PARTS, COMMON)
"""Names of the factors in the model of step times, in order."""

_RESIDUAL_CORRELATION = 0.7
"""Share of the residual that similar layouts have in common. Replays hardly distinguish 0 from 1
(docs/explanation/sampler.md)."""

_RUN_TO_RUN = 0.01
"""Standard deviation of log(measured step time) between runs of one layout. The two layouts that were timed twice in
arXiv 2311.05610 differ by 0.3 % and 0.8 %. Replays do not distinguish 0.01 from 0.05."""

_SWEEP_TO_SWEEP = 0.03
"""Standard deviation of log(step time) of one layout between two sweeps, because nodes and days differ. It is an
assumption."""

_CLAIM = 2.0
"""Number of measurements that the prior of the precision counts for (see ``scale_inflation``). It is small, because
with a wrong precision a sweep takes longer and stops too early (docs/explanation/sampler.md)."""


def time_prior(
    layouts: LayoutColumns,
    predictions: PredictionColumns,
    error: TimeError | LayoutErrors,
    *,
    under_faults: bool = False,
) -> Prior:
    """Return the prior of each layout's log step time in seconds, which holds before any trial.

    If ``error`` has different errors for each layout (``LayoutErrors``), the shares in the prior are multiplied by the
    standard deviations, and each factor has the standard deviation 1. If past runs calibrated the parts of a step, the
    remaining error that a layout's options cause is part of the layout's residual.

    Args:
        layouts: The table of layouts.
        predictions: Predictions of these layouts.
        error: Standard deviations of the errors of predictions, common to all layouts or for each layout.
        under_faults: Use the predicted mean step time under the fault trace. Its relative errors are those of steps
            with nominal links.
    """
    step_time, robust_s = predictions.step_time, predictions.robust_step_s if under_faults else None
    shares = np.concatenate([part_shares(step_time, error), np.ones((len(layouts), 1))], axis=1)
    residual: float | Floats
    if isinstance(error, LayoutErrors):
        shares, residual = _moved(shares, error)
        deviations = np.ones(shares.shape[1])
    else:
        deviations, residual = np.array([*error.parts.values(), error.common]), error.residual
    return Prior(
        layouts=layouts,
        log_predicted=np.log(step_time.total_s if robust_s is None else robust_s),
        shares=shares,
        deviations=deviations,
        residual=residual,
        residual_correlation=_RESIDUAL_CORRELATION,
    )


def _moved(shares: Floats, error: LayoutErrors) -> tuple[Floats, Floats]:
    """Return the change of each row by one standard deviation of each factor, and the deviation of the residual.

    If the errors have a covariance, its symmetric square root gives independent factors, each of which is still mainly
    about the part of its name.
    """
    own = shares * np.stack(
        [np.broadcast_to(one, len(shares)) for one in (*error.parts.values(), error.common)], axis=1
    )
    if error.covariance is None:
        return own, error.residual
    values, vectors = np.linalg.eigh(error.covariance)
    moved: Floats = error.moved_by(shares[:, :-1]) @ ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
    return moved, np.sqrt(np.square(error.residual) + np.square(own).sum(axis=1))


def learn_times(
    prior: Prior,
    step_time_s: Mapping[int, float],
    *,
    related: Related | None = None,
    related_step_time_s: Sequence[float] = (),
    related_noise: Sequence[float] = (),
) -> Posterior:
    """Return the posterior of each layout's log step time after some layouts of this or other jobs were timed.

    Args:
        prior: The prior of the step times of the table's layouts.
        step_time_s: Measured step time by index of the layout in the table.
        related: Timed layouts of other jobs; None: there are none.
        related_step_time_s: Measured step time of each of these layouts.
        related_noise: Variances of the noise of the first step times in ``related_step_time_s``. The other step times
            have the usual noise from run to run.
    """
    rows = np.array(list(step_time_s), dtype=np.int64)
    log_s = np.log([*step_time_s.values(), *related_step_time_s])
    noise = np.full(log_s.size, _RUN_TO_RUN**2)
    noise[len(rows) : len(rows) + len(related_noise)] = related_noise
    return condition(prior, rows, log_s, noise, related)


def past_noise(prior: Prior, related: Related, step_time_s: Sequence[float]) -> Floats:
    """Return the noise variance of each past trial. It is larger if a fault seems to have slowed the trial down.

    Args:
        prior: The prior of the step times.
        related: Past trials as points.
        step_time_s: Measured step time of each past trial.
    """
    points = related.points
    covariance = prior.covariance(points, points, related.similarity)
    errors = np.log(step_time_s) - points.log_predicted
    return student_noise(covariance, errors, np.full(len(points), _SWEEP_TO_SWEEP**2), only_above=True)


def scale_inflation(times: Posterior) -> float:
    """Return a factor for standard deviations; it is above 1 if errors of predictions were larger than claimed.

    This is the factor of a Student-t process, in which the scale of the prior is itself uncertain. The inverse-gamma
    prior of the scale has the weight of ``_CLAIM`` observations (Shah, Wilson and Ghahramani 2014, arXiv 1402.4306,
    section 3). The factor is at least 1, because a few correct predictions are no reason to stop the search.
    """
    return max(1.0, math.sqrt((_CLAIM + times.surprise) / (_CLAIM + len(times.seen))))


_FACTORS: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(("activations_bytes", "logits_bytes", "gradients_bytes"), 1.0)
    | dict.fromkeys(("buffers_bytes", "allowance_bytes"), 3.0)
)
"""Standard deviation of the log factor of each part, in units of ``MEMORY_DEVIATION``. Weights and optimizer states are
exact arithmetic; saved activations and converted gradients depend on the engine's kernels; buffers and the allowance
depend on the engine. Together with the residual they give a usual layout an error of slightly more than one unit. It is
an assumption: replays take as many trials with half or twice as much."""

MEMORY_FACTORS = tuple(_FACTORS)
"""Names of the factors in the model of peak memory, in order."""

_PEAK_RESIDUAL = 0.75
"""Standard deviation of the residual of peaks, in units of ``MEMORY_DEVIATION``: as much as that of all factors
together."""

_PEAK_CORRELATION = 0.7
"""Share of the residual of peaks that similar layouts have in common. With 0.7 to 1, earlier runs of arXiv 2311.05610
predict best which later runs are out of memory."""

_PEAK_RUN_TO_RUN = 0.02
"""Standard deviation of log(peak) between runs of one layout, because fragmentation varies. It is an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTrial:
    """The memory result of a trial: whether the layout fitted, and its peak if the peak was measured."""

    fits: bool
    """True if the trial ran; False if it ran out of memory."""
    peak_bytes: float | None = None
    """Peak bytes of the rank with most memory, if they were measured. They correspond to the predicted total."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RelatedPeaks:
    """Memory results of trials of other jobs: whether each fitted, its peak, and the memory limit that it had."""

    points: Related
    trials: Sequence[MemoryTrial]
    limit_bytes: Sequence[float]


def memory_prior(layouts: LayoutColumns, memory: MemoryColumns) -> Prior:
    """Return the prior distribution of the log of each layout's peak memory in bytes, before any trial has run."""
    total_bytes = memory.total_bytes
    return Prior(
        layouts=layouts,
        log_predicted=np.log(total_bytes),
        shares=np.stack([getattr(memory, name) / total_bytes for name in _FACTORS], axis=1),
        deviations=MEMORY_DEVIATION * np.array(list(_FACTORS.values())),
        residual=MEMORY_DEVIATION * _PEAK_RESIDUAL,
        residual_correlation=_PEAK_CORRELATION,
    )


def learn_peaks(
    prior: Prior, limit_bytes: float, trials: Mapping[int, MemoryTrial], related: RelatedPeaks | None = None
) -> Posterior:
    """Return the posterior of each layout's log peak memory after layouts of any job ran or ran out of memory.

    A measured peak is an ordinary observation. If a trial only shows that its peak is below or above the limit, this
    result is not Gaussian. It is replaced by a Gaussian observation that gives the same mean and variance, one trial
    after the other. This method is called assumed density filtering (Minka 2001, Expectation Propagation for
    approximate Bayesian inference, section 2).

    Args:
        prior: The prior of the peaks of the table's layouts.
        limit_bytes: Memory limit of a rank.
        trials: Memory results of trials of this job, by index of the layout in the table.
        related: Memory results of trials of other jobs; None: there are none.
    """
    rows = np.array(list(trials), dtype=np.int64)
    results, limits = list(trials.values()), [limit_bytes] * len(trials)
    if related is not None:
        results, limits = results + list(related.trials), limits + list(related.limit_bytes)
    points = None if related is None else related.points
    before = prior.seen(rows, points)
    mean, covariance = before.points.log_predicted, prior.covariance(before.points, before.points, before.similarity)
    observed, noise = np.empty(len(results)), np.empty(len(results))
    for index, (trial, limit) in enumerate(zip(results, limits, strict=True)):
        if trial.fits and trial.peak_bytes is not None:
            observed[index], noise[index] = math.log(trial.peak_bytes), _PEAK_RUN_TO_RUN**2
        else:
            belief = float(mean[index]), float(covariance[index, index])
            observed[index], noise[index] = _one_sided(*belief, math.log(limit), below=trial.fits)
        gain = covariance[:, index] / (covariance[index, index] + noise[index])
        mean = mean + gain * (observed[index] - mean[index])
        covariance = covariance - np.outer(gain, covariance[index])
    return condition(prior, rows, observed, noise, points)


def _one_sided(mean: float, variance: float, limit: float, *, below: bool) -> tuple[float, float]:
    """Return value and variance of the Gaussian observation that stands for "below the limit" or "above the limit".

    It matches the moments of a normal density times a normal distribution function (Rasmussen and Williams 2006,
    equations 3.82 to 3.85).
    """
    side = 1.0 if below else -1.0
    spread = variance + _PEAK_RUN_TO_RUN**2
    z = side * (limit - mean) / math.sqrt(spread)
    ratio = inverse_mills(z)
    curvature = max(ratio * (z + ratio) / spread, 1e-12)  # of the log likelihood; almost none where nothing was learnt
    return mean - side * ratio / math.sqrt(spread) / curvature, 1 / curvature - variance
