"""Were the predictions right: each beside what was measured, how many kept their interval, how far off they were."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.results.reached import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTrial:
    """A trial's prediction, made before it ran, beside what it reached."""

    trial: int
    """Its number in its sweep."""
    source: Source
    """What its figures have to be called."""
    predicted_step_s: float
    """Of the layout at full size."""
    reached_step_s: float
    """Measured, estimated or simulated."""
    predicted_mfu: float
    """Of the layout at full size; on cores beside the peak that was known before any trial."""
    reached_mfu: float
    """Measured, estimated or simulated."""
    reached_error: float
    """Half-width of the interval of what was reached, as a share of it."""
    relative_error: float | None
    """Half-width of the 80 % interval of the prediction; None in records older than this field."""
    error: float
    """Step time that was reached over the predicted one, less 1: above 0 the layout was slower than predicted."""
    is_within: bool | None
    """The reached step time lies in the interval of the prediction; None where that is not known."""
    predicted_bytes: float
    """Peak of the fullest rank, without what no allocator sees."""
    reached_bytes: float | None
    """Measured peak; None where nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How right the predictions of a sweep were."""

    trials: tuple[ComparedTrial, ...]
    """Those that were measured, by number."""
    num_intervals: int
    """Those whose prediction had an interval."""
    num_within: int
    """Those of them that kept it: of true 80 % intervals four of five."""
    median_error: float | None
    """Of step times, without signs; None before the first."""
    bias: float | None
    """Median error with signs: above 0 layouts are slower than predicted."""
    memory_error: float | None
    """Median error of peaks, without signs; None where nobody told them."""


def accuracy(request: SweepRequest, trials: Sequence[Trial]) -> Accuracy:
    """Compare the predictions of a sweep's ranked trials with what these reached; repeats say nothing new."""
    tells_peaks = request.trainer is None or request.job.cluster.accelerator.kind != "cpu"  # else of the process
    ranked = sorted((trial for trial in trials if trial.is_ranked), key=lambda trial: trial.number)
    compared = tuple(_compared(trial, tells_peaks=tells_peaks) for trial in ranked)
    errors = [one.error for one in compared]
    memory = [one.reached_bytes / one.predicted_bytes - 1 for one in compared if one.reached_bytes]
    with_interval = [one for one in compared if one.is_within is not None]
    return Accuracy(
        trials=compared,
        num_intervals=len(with_interval),
        num_within=sum(bool(one.is_within) for one in with_interval),
        median_error=statistics.median(map(abs, errors)) if errors else None,
        bias=statistics.median(errors) if errors else None,
        memory_error=statistics.median(map(abs, memory)) if memory else None,
    )


def _compared(trial: Trial, *, tells_peaks: bool) -> ComparedTrial:
    assert trial.reached is not None, "it has a rank"
    prediction, reached_s = trial.prediction, trial.reached.step_time_s
    predicted_s, memory = prediction.step_time.total_s, prediction.memory
    half_width = prediction.relative_error
    is_within = None if half_width is None else 1 / (1 + half_width) <= reached_s / predicted_s <= 1 + half_width
    measured = trial.measurement if tells_peaks else None
    return ComparedTrial(
        trial=trial.number,
        source=trial.reached.source,
        predicted_step_s=predicted_s,
        reached_step_s=reached_s,
        predicted_mfu=prediction.mfu,
        reached_mfu=trial.reached.mfu,
        reached_error=trial.reached.step_time_error_s / reached_s,
        relative_error=half_width,
        error=reached_s / predicted_s - 1,
        is_within=is_within,
        predicted_bytes=memory.total_bytes - memory.allowance_bytes,
        reached_bytes=measured.highest_peak_bytes if measured else None,
    )
