"""PredictedGate: a performance gate without a cluster, which compares two layouts by their predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.core.dry_run import DryRun
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.upkeep import RegressionGateOutcome
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.uncertainty import fit_probability, interval_error
from autotuner.search.sampler.priors import time_prior

_Z95 = 1.96
"""Number of standard deviations from the median to each end of a 95 % interval of a normal distribution."""

_LIKELY = 0.5
"""Probability to fit below which a layout counts as one that runs out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedChange:
    """Predicted relative change of speed from one layout to another, with its 95 % interval; below 0: slower."""

    change: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPeak:
    """Predicted peak memory in bytes of the rank that needs the most, and the probability that it fits.

    The peak includes memory that the allocator does not report.
    """

    peak_bytes: float
    is_counted: bool
    """True if a dry run counted the bytes of the tensors; otherwise the peak comes from the cost model's formulas
    alone."""
    fit_probability: float
    """Probability that the device has enough memory for the peak."""

    @property
    def fits(self) -> bool:
        """Return True if the peak fits in memory with a probability of at least one half."""
        return self.fit_probability >= _LIKELY


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGate:
    """The result of a performance regression gate by prediction: whether a change of the layout may be merged.

    Nothing was measured.
    """

    outcome: RegressionGateOutcome
    tolerance: float
    """Relative slowdown that is accepted."""
    candidate: Layout
    reasons: tuple[Reason, ...] = ()
    """All rules that the candidate breaks."""
    reference: Layout | None = None
    """Layout of the baseline; None: there is no baseline to compare with."""
    predicted: Prediction | None = None
    """Prediction of the candidate; None if it breaks a rule."""
    peak: PredictedPeak | None = None
    """Peak of the candidate; None if it breaks a rule."""
    expected: Prediction | None = None
    """Prediction of the reference."""
    change: PredictedChange | None = None
    """Change from the reference to the candidate."""
    notes: tuple[str, ...] = ()
    """Notes for the reader: sentences without full stops."""

    @property
    @derived
    def is_passed(self) -> bool:
        """True if the change may be merged; False if the gate failed or could not decide."""
        return self.outcome is RegressionGateOutcome.PASSED


def predicted_gate(
    job: Job,
    candidate: Layout,
    reference: Layout | None,
    *,
    tolerance: float,
    dry_run: DryRun | None = None,
    notes: tuple[str, ...] = (),
) -> PredictedGate:
    """Judge a layout by prediction: it must run, fit in memory, and not be slower than a reference layout.

    The gate fails if the layout is predicted to be slower by more than the tolerance, and the whole 95 % interval of
    the change of speed lies below 0. If the interval includes 0, the outcome is undecided, and only a measurement can
    decide.

    Args:
        job: Model, cluster, workload and software of both layouts.
        candidate: The layout that the change would train with.
        reference: A legal layout of the same job to compare with; None: check only that the candidate runs and fits.
        tolerance: Relative loss of speed that is accepted.
        dry_run: Dry run of the candidate, which counts the bytes of its tensors. None: the cost model predicts the
            memory.
        notes: Further notes for the reader.
    """
    if broken := reasons(candidate, job):
        return PredictedGate(
            outcome=RegressionGateOutcome.FAILED,
            tolerance=tolerance,
            candidate=candidate,
            reasons=broken,
            reference=reference,
            notes=notes,
        )
    predicted = predict_one(candidate, job)
    peak = predicted_peak(predicted, job, dry_run)
    change = None if reference is None else predicted_change(job, reference, candidate)
    return PredictedGate(
        outcome=_judged(peak, change, tolerance),
        tolerance=tolerance,
        candidate=candidate,
        reference=reference,
        predicted=predicted,
        peak=peak,
        expected=None if reference is None else predict_one(reference, job),
        change=change,
        notes=(*notes, *(() if dry_run is None else dry_run.notes)),
    )


def predicted_peak(predicted: Prediction, job: Job, dry_run: DryRun | None) -> PredictedPeak:
    """Return the predicted peak memory of the rank that needs the most, and the probability that it fits.

    Args:
        predicted: Prediction of the layout.
        job: The job.
        dry_run: Dry run of the layout. Its counted bytes of tensors replace the predicted bytes. None: use the
            prediction alone. In both cases, an allowance is added for memory that the allocator does not report.
    """
    allowance_bytes = predicted.memory.allowance_bytes
    peak_bytes = predicted.memory.total_bytes
    if dry_run is not None:
        peak_bytes = dry_run.fullest.held.peak_bytes + allowance_bytes
    chance = fit_probability(np.array([peak_bytes]), float(job.cluster.accelerator.memory_bytes))[0]
    return PredictedPeak(peak_bytes=peak_bytes, is_counted=dry_run is not None, fit_probability=float(chance))


def predicted_change(job: Job, reference: Layout, candidate: Layout) -> PredictedChange:
    """Return the predicted change of speed from a reference layout to a candidate, with its 95 % interval.

    The change is known better than the step time of either layout, because errors that both predictions have in common
    cancel out. Such errors are those of parts that take as much time in both layouts, errors of the cluster, and errors
    that similar layouts share. The correlations are the same as in a sweep (``search.sampler.priors``).

    Args:
        job: The job of both layouts.
        reference: The reference layout.
        candidate: The candidate layout.
    """
    both = LayoutColumns.from_layouts([reference, candidate])
    table = predict(both, job)
    prior = time_prior(both, table, interval_error(both, job))
    points = prior.points(np.arange(2))
    covariance = prior.covariance(points, points)
    deviation = math.sqrt(max(0.0, covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
    mean = float(prior.log_predicted[0] - prior.log_predicted[1])  # log of the ratio of rates
    low, high = (math.expm1(mean + z * deviation) for z in (-_Z95, _Z95))
    return PredictedChange(change=math.expm1(mean), low=low, high=high)


def _judged(peak: PredictedPeak, change: PredictedChange | None, tolerance: float) -> RegressionGateOutcome:
    if not peak.fits:
        return RegressionGateOutcome.FAILED
    if change is None or change.change >= -tolerance:
        return RegressionGateOutcome.PASSED
    return RegressionGateOutcome.FAILED if change.high < 0 else RegressionGateOutcome.UNDECIDED
