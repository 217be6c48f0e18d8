"""Errors of predictions: intervals of step times, and the probability that a layout fits in memory.

The error of a step time combines three errors: those of its parts, each of which depends on how well its formula was
compared with measured runs; a residual; and, until runs on this cluster were measured, its speed relative to other
clusters of its kind. All factors are log-normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from autotuner.catalog.software import BITS_8, BITS_16
from autotuner.core.choices import NARROW_PRECISIONS
from autotuner.core.columns import Booleans, Floats, LayoutColumns, is_one_of
from autotuner.core.job import BF16_ON_CORES, BF16_PARTS, Calibration, Job
from autotuner.core.prediction import StepTime
from autotuner.costmodel.evidence import Evidence, Where
from autotuner.costmodel.shared.low_precision import is_bf16_on_cores

Z80 = 1.2816
"""Number of standard deviations from the median to each end of an 80 % interval of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeError:
    """The scatter of measured step times around predicted ones, by source of error, for all layouts of a job.

    Each number is a standard deviation of log(measured / predicted). A search uses these numbers before its first
    trial.
    """

    parts: Mapping[str, float]
    """Standard deviation of the efficiency of each part of ``StepTime``, by field name, for all layouts of a job."""
    residual: float
    """Standard deviation of the residual, which is independent for each layout."""
    common: float = 0.0
    """Standard deviation of a factor that all step times share. It does not say which layout is better, but it keeps a
    search from explaining its first measurement by single parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutErrors:
    """The scatter of measured step times around predicted ones, from which each layout's interval is computed.

    Each number is a standard deviation of log(measured / predicted): one number for all layouts, or one for each
    layout.
    """

    parts: Mapping[str, float | Floats]
    residual: Floats
    common: float
    covariance: Floats | None = None
    """Covariance of the logarithms of the calibrated factors: the parts, and last the whole step. With it, ``parts`` is
    the deviation that a layout's own options add, and ``common`` is 0. None: each factor is known separately."""
    bf16_on_cores: Booleans | None = None
    """Layouts that the factor ``bf16_on_cores`` applies to. In ``covariance`` this factor comes before that of the
    whole step. None: no layouts."""

    def moved_by(self, shares: Floats) -> Floats:
        """Return by how much the log of each step time changes if the log of one calibrated factor changes by one.

        A calibrated factor multiplies one part of the step time, or the whole.

        Args:
            shares: Share of each part in each step, of shape (layouts, parts), as from ``part_shares``.

        Returns:
            Array of shape (layouts, parts + 2), in the order of ``covariance``. The last two columns are for the factor
            of bf16 on CPU cores, and for the factor of the whole step.
        """
        rows = np.zeros(len(shares)) if self.bf16_on_cores is None else self.bf16_on_cores * (shares @ _IN_BF16)
        return np.column_stack([shares, rows, np.ones(len(shares))])


PARTS: Mapping[str, float] = {
    "matrix_s": 0.10,
    "attention_s": 0.25,
    "pointwise_s": 0.30,
    "host_s": 0.50,
    "recompute_s": 0.15,
    "offload_s": 0.60,
    "tensor_communication_s": 0.40,
    "context_communication_s": 0.50,
    "expert_communication_s": 0.60,
    "pipeline_communication_s": 0.60,
    "data_communication_s": 0.60,
    "bubble_s": 0.15,
    "optimizer_s": 0.40,
}
"""Standard deviations of the logarithm of each part's factor, for software without fitted constants.

The values for products, memory traffic, host, data-parallel communication and optimizer are the differences between the
fitted constants of the stacks in catalog/stacks.toml. The value for attention covers versions of kernels. The others
are assumptions.
"""

_IN_BF16 = np.array([name in BF16_PARTS for name in PARTS], dtype=np.float64)

RESIDUAL = 0.08
"""Standard deviation of the error that no part explains, independent for each layout. Replays of published sweeps
determined it (docs/explanation/sampler.md). Intervals use it if no run of the kind was compared."""

TRUST: Mapping[Where, float] = {Where.HERE: 0.2, Where.ELSEWHERE: 1.0, Where.NOWHERE: 2.0}
"""Factor on ``PARTS`` by the closest comparison of a formula with measured runs. With a comparison on this device, the
scatter of the runs covers the rest. It is an assumption that formulas without any comparison are known half as well as
those of other software."""

SEARCHED = 0.4
"""Factor on ``PARTS`` for a search if the stack was compared on this device, because the search must be able to learn
that this job differs. Of 1, 0.4 and 0.2, this value needs the fewest trials in replays of the published sheets."""

COMMON = 0.15
"""Standard deviation of the common factor for a search, even on a known cluster, because each job has its own
deviation. It saves trials in replays (docs/explanation/sampler.md)."""

CLUSTER = 0.15
"""Standard deviation of the speed factor among clusters of one kind with known software (research.intervals)."""

_UNKNOWN_DEVICE = 2.0
"""Factor on the residual and on the cluster's deviation for a device on which no run was compared. It is an
assumption."""

MEMORY_DEVIATION = 0.08
"""Standard deviation of log(peak at which memory runs out / predicted peak)."""


def time_error(job: Job) -> TimeError:
    """Return the standard deviations of log(measured / predicted) that a search assumes before a job's first trial."""
    base = Evidence.of(job).base
    factor = SEARCHED if base == Where.HERE else TRUST[base]
    unknown = _UNKNOWN_DEVICE if base == Where.NOWHERE else 1.0
    return TimeError(
        parts={name: factor * value for name, value in PARTS.items()},
        residual=unknown * RESIDUAL,
        common=unknown * COMMON,
    )


def interval_error(x: LayoutColumns, job: Job) -> LayoutErrors:
    """Return the standard deviations from which the 80 % intervals of these layouts' step times are computed."""
    evidence = Evidence.of(job)
    residual, parts = _residual(x, job, evidence), _parts(x, evidence)
    if job.calibration is None or not job.calibration.parts:
        return LayoutErrors(parts=parts, residual=residual, common=cluster_deviation(job))
    scale, known = job.calibration.interval_scale, part_deviations(job)
    return LayoutErrors(
        parts={name: scale * _beyond(parts[name], known[name]) for name in PARTS},
        residual=scale * residual,
        common=0.0,
        covariance=scale**2 * _covariance(job.calibration),
        bf16_on_cores=is_bf16_on_cores(x, job),
    )


def part_deviations(job: Job) -> Mapping[str, float]:
    """Return the uncertainty of each part of a step time before any run on the job's cluster, by name of the part.

    Each value is the standard deviation of the log of the part's factor (measured time / predicted time). It holds for
    layouts whose options were all compared with measured runs for this job.
    """
    evidence = Evidence.of(job)
    trust = dict.fromkeys(PARTS, TRUST[evidence.base])
    trust |= {part: TRUST[where] for part, where in evidence.of_parts.items()}
    return {name: trust[name] * deviation for name, deviation in PARTS.items()}


def _beyond(deviation: float | Floats, known: float) -> Floats:
    """Return the deviation that a layout's options add to a part, beyond the known deviation of runs without them."""
    beyond: Floats = np.sqrt(np.maximum(np.square(deviation) - known**2, 0.0))
    return beyond


def _covariance(known: Calibration) -> Floats:
    """Return the covariance of the logarithms of the factors: ``PARTS``, then bf16 on cores, then the whole step."""
    names = (*(one.part for one in known.parts), "")
    deviations = np.array([*(one.deviation for one in known.parts), known.deviation])
    covariance = np.array(known.correlations) * np.outer(deviations, deviations)
    every = (*PARTS, BF16_ON_CORES, "")
    places = [every.index(name) for name in names]
    found = np.zeros((len(every), len(every)))
    found[np.ix_(places, places)] = covariance
    return found


def _parts(x: LayoutColumns, evidence: Evidence) -> Mapping[str, float | Floats]:
    """Return the deviation of each part: that of the least known formula that the part depends on."""
    trust: dict[str, float | Floats] = dict.fromkeys(PARTS, TRUST[evidence.base])
    trust |= {part: TRUST[where] for part, where in evidence.of_parts.items()}
    for subject, where in evidence.less_known:
        if subject.parts and (has := subject.of(x)).any():
            for part in subject.parts:
                trust[part] = np.maximum(trust[part], np.where(has, TRUST[where], 0.0))
    return {name: trust[name] * deviation for name, deviation in PARTS.items()}


def _residual(x: LayoutColumns, job: Job, evidence: Evidence) -> Floats:
    """Return the scatter of runs like each layout, by the width of its number format.

    If the stack states its own scatter, that is returned.
    """
    if job.stack.scatter is not None:
        return np.full(len(x), job.stack.scatter)
    unknown = _UNKNOWN_DEVICE if evidence.base == Where.NOWHERE else 1.0
    narrow, wide = (_scatter(evidence, bits) for bits in (BITS_8, BITS_16))
    scatter: Floats = unknown * np.where(is_one_of(x.precision, NARROW_PRECISIONS), narrow, wide)
    return scatter


def _scatter(evidence: Evidence, bits: str) -> float:
    known = evidence.scatter(bits)
    return RESIDUAL if known is None else known


def cluster_deviation(job: Job) -> float:
    """Return the uncertainty of the cluster's factor, by which all predicted step times on the cluster are multiplied.

    The value is the standard deviation of the factor's log. Without calibration, it is the deviation among clusters of
    one kind. With calibration, it is the deviation that remains after the measured runs on this cluster.
    """
    if job.calibration is not None:
        return job.calibration.deviation
    return (_UNKNOWN_DEVICE if Evidence.of(job).base == Where.NOWHERE else 1.0) * CLUSTER


def part_shares(step_time: StepTime[Floats], error: TimeError | LayoutErrors) -> Floats:
    """Return the share of each part in each predicted step time, as an array of shape (layouts, parts).

    The parts are in the order of ``error.parts``. A share says how much a part's error matters: if the log of the
    part's factor changes by a small amount, the log of the step time changes by the share times this amount.

    Args:
        step_time: Predicted step times, by part.
        error: Deviations, whose parts give the order.
    """
    total_s = step_time.total_s
    return np.stack([getattr(step_time, name) / total_s for name in error.parts], axis=1)


def relative_error(x: LayoutColumns, step_time: StepTime[Floats], job: Job) -> Floats:
    """Return the relative half-width of the 80 % interval of each predicted step time.

    For a predicted time t and a half-width e, the measured time lies between t / (1 + e) and t (1 + e) in 80 % of
    cases.

    Args:
        x: Layouts, one per row.
        step_time: Predicted step times of these layouts, by part.
        job: Model, cluster, workload and software.
    """
    half_width: Floats = np.exp(Z80 * np.sqrt(log_variance(step_time, interval_error(x, job)))) - 1
    return half_width


def log_variance(step_time: StepTime[Floats], error: TimeError | LayoutErrors) -> Floats:
    """Return the variance of log(measured / predicted) of the step time of each layout, from all sources of error.

    Args:
        step_time: Predicted step times, by part.
        error: Deviations by source of error.
    """
    squares = (np.square(deviation * getattr(step_time, name)) for name, deviation in error.parts.items())
    variance: Floats = reduce(np.add, squares) / np.square(step_time.total_s) + error.residual**2 + error.common**2
    if isinstance(error, LayoutErrors) and error.covariance is not None:
        variance += _shared_variance(step_time, error)
    return variance


def _shared_variance(step_time: StepTime[Floats], error: LayoutErrors) -> Floats:
    """Return the variance of each step time from the correlated errors of the factors."""
    assert error.covariance is not None, "only then do layouts share errors of factors"
    covariance, total_s = error.covariance, step_time.total_s
    variance = np.full(total_s.shape, covariance[-1, -1])
    shares = {i: getattr(step_time, name) / total_s for i, name in enumerate(PARTS)}
    if error.bf16_on_cores is not None and error.bf16_on_cores.any():
        in_bf16 = np.add.reduce([shares[i] for i, name in enumerate(PARTS) if name in BF16_PARTS])
        shares[len(PARTS)] = error.bf16_on_cores * in_bf16
    # for most layouts half of the factors are not needed
    present = [number for number, share in shares.items() if share.any()]
    for number in present:
        row = 2 * covariance[number, -1] + sum(covariance[number, other] * shares[other] for other in present)
        variance += shares[number] * row
    positive: Floats = np.maximum(variance, 0.0)  # rounding may leave it below
    return positive


def fit_probability(peak_bytes: Floats, limit_bytes: float) -> Floats:
    """Return the probability that the real peak memory of each layout stays within the memory limit.

    Args:
        peak_bytes: Predicted peaks of a rank, of shape (layouts,).
        limit_bytes: Memory of the accelerator.

    Returns:
        Probabilities from 0 to 1, of shape (layouts,).

    Example:
        >>> fit_probability(np.array([80e9]), 80e9).tolist()
        [0.5]
    """
    deviations = (math.log(limit_bytes) - np.log(peak_bytes)) / MEMORY_DEVIATION
    # the logistic curve nearest to the normal distribution function, which numpy lacks; off by less than 0.01
    probability: Floats = 1 / (1 + np.exp(np.clip(-1.702 * deviations, -50, 50)))
    return probability
