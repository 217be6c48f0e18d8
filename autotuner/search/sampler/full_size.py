"""What proxy trials and the model together say of layouts at full size: step time, interval, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import FullSizeEstimate, StepTime
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.costmodel.table import row
from autotuner.costmodel.uncertainty import Z80, interval_error
from autotuner.search.sampler.model import Estimate, Prior
from autotuner.search.sampler.normal import log_probability
from autotuner.search.sampler.priors import (
    learn_peaks,
    learn_times,
    memory_prior,
    scale_inflation,
    time_prior,
)
from autotuner.search.sampler.transfer import StandIn, StandIns

_STEP_PARTS = tuple(f.name for f in fields(StepTime))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTrial:
    """What a proxy trial told; if it ran the layout itself, on the job itself, it is an ordinary observation."""

    stands_for: Layout
    """Layout of the full-size job in whose place it ran."""
    stand_in: StandIn
    """What it ran."""
    step_time_s: float | None = None
    """Measured; None where it was not."""
    fits: bool | None = None
    """It ran, or ran out of memory; None where it ended otherwise."""
    peak_bytes: float | None = None
    """That the fullest rank had allocated, where that was measured."""
    measured_parts: tuple[str, ...] = ()
    """Fields of ``StepTime`` that it ran just as ``stands_for`` does (``ScaledTrial.measured_parts``)."""


class FullSize:
    """Estimates of layouts of one job at full size; predicts each proxy trial once, however often it is asked about.

    The belief is that behind the intervals of predictions, so that proxy trials narrow what predictions say, unless
    they surprise more than these allow: then intervals widen (``scale_inflation``). That of the sampler, which has
    wider parts and so learns from a job's first trials, is another (``times_as_searched``).
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stand_ins = StandIns(job, times=times_in_intervals)
        self._last: tuple[tuple[Layout, ...], LayoutColumns, PredictionColumns] | None = None

    def estimates(self, layouts: Sequence[Layout], trials: Iterable[ProxyTrial]) -> list[FullSizeEstimate]:
        """Of each layout, after all of these trials; every layout must be legal for the job."""
        told = list(trials)
        if not layouts:
            return []
        columns, predictions = self._predicted(tuple(layouts))
        (times, own), peaks = self._seconds(columns, predictions, told), self._peaks(columns, predictions, told)
        log_limit = math.log(self._job.cluster.accelerator.memory_bytes)
        fits, peak_bytes = np.exp(log_probability(log_limit - peaks.mean, np.sqrt(peaks.variance))), np.exp(peaks.mean)
        if not any(trial.fits is not None for trial in told):
            fits = predictions.fit_probability
        own_errors = np.expm1(Z80 * np.sqrt(own)).tolist()
        timed = [trial for trial in told if trial.step_time_s is not None]
        found = []
        for number, layout in enumerate(layouts):
            step_time = row(predictions.step_time, number)
            present = [part for part in _STEP_PARTS if getattr(step_time, part) > 0]
            ran = {part for trial in timed if trial.stands_for == layout for part in trial.measured_parts}
            measured = tuple(part for part in present if part in ran)
            measured_s = sum(getattr(step_time, part) for part in measured)
            estimate = FullSizeEstimate(
                step_time_s=math.exp(times.mean[number]),
                relative_error=math.expm1(Z80 * math.sqrt(times.variance[number])),
                peak_bytes=float(peak_bytes[number]),
                fit_probability=float(fits[number]),
                num_proxy_trials=len(timed),
                measured_parts=measured,
                modelled_parts=tuple(part for part in present if part not in ran),
                measured_share=min(1.0, measured_s / step_time.total_s),
                own_error=own_errors[number],
            )
            found.append(estimate)
        return found

    def _predicted(self, layouts: tuple[Layout, ...]) -> tuple[LayoutColumns, PredictionColumns]:
        """The layouts as columns, predicted once for as long as the same are asked about."""
        if self._last is None or self._last[0] != layouts:
            columns = LayoutColumns.from_layouts(layouts)
            self._last = layouts, columns, predict(columns, self._job)
        return self._last[1:]

    def _seconds(
        self, columns: LayoutColumns, predictions: PredictionColumns, told: Sequence[ProxyTrial]
    ) -> tuple[Estimate, Floats]:
        """Log step times, and of their variances what the layouts do not share."""
        timed = [(trial, trial.step_time_s) for trial in told if trial.step_time_s is not None]
        points = self._stand_ins.times([(trial.stands_for, trial.stand_in) for trial, _ in timed]) if timed else None
        prior = times_in_intervals(columns, predictions, self._job)
        belief = learn_times(prior, {}, related=points, related_step_time_s=[seconds for _, seconds in timed])
        rows, widened = np.arange(len(columns)), scale_inflation(belief) ** 2
        estimate = belief.at(rows)
        estimate = replace(estimate, variance=widened * estimate.variance)
        return estimate, np.maximum(estimate.variance - widened * max(0.0, belief.shared_variance(rows)), 0.0)

    def _peaks(self, columns: LayoutColumns, predictions: PredictionColumns, told: Sequence[ProxyTrial]) -> Estimate:
        prior = memory_prior(columns, predictions.memory)
        limit_bytes = float(self._job.cluster.accelerator.memory_bytes)
        ended = [trial for trial in told if trial.fits is not None]
        related = None
        if ended:
            stood_for = [(trial.stands_for, trial.stand_in) for trial in ended]
            memory = self._stand_ins.memory
            seen = [memory(one.stand_in, fits=bool(one.fits), peak_bytes=one.peak_bytes) for one in ended]
            related = self._stand_ins.peaks(stood_for, seen)
        return learn_peaks(prior, limit_bytes, {}, related).at(np.arange(len(columns)))


def times_in_intervals(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """The belief about step times that the intervals of predictions tell."""
    return time_prior(layouts, predictions, interval_error(layouts, job))
