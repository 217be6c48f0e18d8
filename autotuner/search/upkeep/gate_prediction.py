"""A gate without a cluster: a layout beside that of the baseline by prediction, and whether it fits in memory."""

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
from autotuner.core.upkeep import MfuGateOutcome
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict, predict_one
from autotuner.costmodel.uncertainty import fit_probability, interval_error
from autotuner.search.sampler.priors import time_prior

_Z95 = 1.96
"""Standard deviations from the median to either end of a 95 % interval of a normal distribution."""

_LIKELY = 0.5
"""Probability to fit below which a layout counts as one that runs out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedChange:
    """A predicted change of speed between two layouts, below 0: slower; with its 95 % interval."""

    change: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPeak:
    """The predicted peak of the fullest rank, with what no allocator sees."""

    peak_bytes: float
    is_counted: bool
    """True if a dry run counted it; else it follows from the closed forms alone."""
    fit_probability: float
    """Probability that the device has it."""

    @property
    def fits(self) -> bool:
        """Return whether it is likelier to fit than not."""
        return self.fit_probability >= _LIKELY


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedGate:
    """The prediction of a change, and whether it may be merged."""

    outcome: MfuGateOutcome
    tolerance: float
    """Relative loss that is accepted."""
    candidate: Layout
    reasons: tuple[Reason, ...] = ()
    """Every rule that the candidate breaks."""
    reference: Layout | None = None
    """The layout of the baseline; None: the candidate stands alone."""
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
        """The change may be merged."""
        return self.outcome is MfuGateOutcome.PASSED


def predicted_gate(
    job: Job,
    candidate: Layout,
    reference: Layout | None,
    *,
    tolerance: float,
    dry_run: DryRun | None = None,
    notes: tuple[str, ...] = (),
) -> PredictedGate:
    """Judge a layout by prediction: whether it can run, fits, and is not slower than the reference.

    It fails where it is slower by more than the tolerance and that is outside the error of the prediction; where it is
    within, nobody can tell without a measurement.

    Args:
        job: What both train, on what.
        candidate: What the change trains with.
        reference: A legal layout of the same job; None: only whether the candidate runs and fits is asked.
        tolerance: Relative loss that is accepted.
        dry_run: Of the candidate; None: its memory is that of the closed forms.
        notes: What a reader should know beside that.
    """
    if broken := reasons(candidate, job):
        return PredictedGate(
            outcome=MfuGateOutcome.FAILED,
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
    """Return what the fullest rank needs: tensors as a dry run counts them, where there is one, and the allowance."""
    allowance_bytes = predicted.memory.allowance_bytes
    peak_bytes = predicted.memory.total_bytes
    if dry_run is not None:
        peak_bytes = dry_run.fullest.held.peak_bytes + allowance_bytes
    chance = fit_probability(np.array([peak_bytes]), float(job.cluster.accelerator.memory_bytes))[0]
    return PredictedPeak(peak_bytes=peak_bytes, is_counted=dry_run is not None, fit_probability=float(chance))


def predicted_change(job: Job, reference: Layout, candidate: Layout) -> PredictedChange:
    """Return how much faster the candidate is: what both predictions are off by together takes no part in it.

    Errors of parts that both spend as much time on, of the cluster, and what like layouts share cancel out, as a sweep
    believes it (``search.sampler.priors``); so two layouts of one job are told apart better than either is known.
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


def _judged(peak: PredictedPeak, change: PredictedChange | None, tolerance: float) -> MfuGateOutcome:
    if not peak.fits:
        return MfuGateOutcome.FAILED
    if change is None or change.change >= -tolerance:
        return MfuGateOutcome.PASSED
    return MfuGateOutcome.FAILED if change.high < 0 else MfuGateOutcome.UNDECIDED
