"""Which layouts fit in memory, as far as predictions and the trials so far tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.costmodel.memory.peak import MemoryColumns
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION
from autotuner.search.sampler.posterior import Posterior, Prior, Related, condition

_FACTORS: Mapping[str, float] = MappingProxyType(
    {
        "activations_bytes": 1.0,
        "logits_bytes": 1.0,
        "gradients_bytes": 1.0,
        "buffers_bytes": 3.0,
        "allowance_bytes": 3.0,
    }
)
"""Standard deviation of the log factor on each part, in units of ``MEMORY_DEVIATION``: weights and optimizer states are
arithmetic; saved activations and widened gradients depend on the engine's kernels; buffers and allowance on its habits.
Together with the residual they give a usual layout an error of little more than one unit. An assumption: replays take
as many trials with half or twice as much."""

MEMORY_FACTORS = tuple(_FACTORS)
"""Factors of the belief about peaks, in its order."""

_RESIDUAL = 0.75
"""Standard deviation of what the factors leave, in units of ``MEMORY_DEVIATION``: as much again as the factors."""

_RESIDUAL_CORRELATION = 0.7
"""Part of the residual that like layouts share. Which of the runs of arXiv 2311.05610 run out of memory is told best by
those before them with 0.7 to 1."""

_RUN_TO_RUN = 0.02
"""Standard deviation of log(peak) from run to run of one layout: fragmentation decides at the edge. An assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTrial:
    """What a trial told about memory.

    Attributes:
        fits: It ran; False if it ran out.
        peak_bytes: Of the fullest rank, where that was measured: what compares with the predicted total.
    """

    fits: bool
    peak_bytes: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RelatedPeaks:
    """What trials of other jobs told about memory, each with the limit of the accelerators that it ran on."""

    points: Related
    trials: Sequence[MemoryTrial]
    limit_bytes: Sequence[float]


def memory_prior(layouts: LayoutColumns, memory: MemoryColumns) -> Prior:
    """The belief about the log of each row's peak in bytes before any trial."""
    total_bytes = memory.total_bytes
    return Prior(
        layouts=layouts,
        log_predicted=np.log(total_bytes),
        shares=np.stack([getattr(memory, name) / total_bytes for name in _FACTORS], axis=1),
        deviations=MEMORY_DEVIATION * np.array(list(_FACTORS.values())),
        residual=MEMORY_DEVIATION * _RESIDUAL,
        residual_correlation=_RESIDUAL_CORRELATION,
    )


def learn_peaks(
    prior: Prior, limit_bytes: float, trials: Mapping[int, MemoryTrial], related: RelatedPeaks | None = None
) -> Posterior:
    """The belief after some rows, and some layouts of other jobs, ran or ran out of memory.

    A measured peak is an observation. That a peak lies on one side of the limit is not a Gaussian one; it is replaced
    by the Gaussian observation that leaves the same mean and variance, one trial after the other: assumed density
    filtering (Minka 2001, Expectation Propagation for approximate Bayesian inference, section 2).
    """
    rows = np.array(list(trials), dtype=np.int64)
    told, limits = list(trials.values()), [limit_bytes] * len(trials)
    if related is not None:
        told, limits = told + list(related.trials), limits + list(related.limit_bytes)
    points = None if related is None else related.points
    before = prior.seen(rows, points)
    mean, covariance = before.points.log_predicted, prior.covariance_of(before.points, before.points, before.kinship)
    observed, noise = np.empty(len(told)), np.empty(len(told))
    for index, (trial, limit) in enumerate(zip(told, limits, strict=True)):
        if trial.fits and trial.peak_bytes is not None:
            observed[index], noise[index] = math.log(trial.peak_bytes), _RUN_TO_RUN**2
        else:
            belief = float(mean[index]), float(covariance[index, index])
            observed[index], noise[index] = _one_sided(*belief, math.log(limit), below=trial.fits)
        gain = covariance[:, index] / (covariance[index, index] + noise[index])
        mean = mean + gain * (observed[index] - mean[index])
        covariance = covariance - np.outer(gain, covariance[index])
    return condition(prior, rows, observed, noise, points)


def _one_sided(mean: float, variance: float, limit: float, *, below: bool) -> tuple[float, float]:
    """Value and variance of the Gaussian observation that stands for "below the limit", or for "above it".

    The moments of a normal times a normal distribution function: Rasmussen and Williams 2006, equations 3.82 to 3.85.
    """
    side = 1.0 if below else -1.0
    spread = variance + _RUN_TO_RUN**2
    z = side * (limit - mean) / math.sqrt(spread)
    ratio = _inverse_mills(z)
    curvature = max(ratio * (z + ratio) / spread, 1e-12)  # of the log likelihood; almost none where nothing was learnt
    return mean - side * ratio / math.sqrt(spread) / curvature, 1 / curvature - variance


def _inverse_mills(z: float) -> float:
    """Density over distribution function of a standard normal; far below 0 its limit, -z - 1/z."""
    if z < -30:
        return -z - 1 / z
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (math.erfc(-z / math.sqrt(2)) / 2)
