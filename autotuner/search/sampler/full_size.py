"""FullSize: estimates of layouts at full size, from proxy trials and the cost model together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import FullSizeEstimate, StepTime, TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import FailureKind, ProxyTrial, Trial, TrialState
from autotuner.costmodel.predict import PredictionColumns, predict, predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.costmodel.shared.table import row
from autotuner.costmodel.uncertainty import Z80, interval_error
from autotuner.search.sampler.gaussian_model import Estimate, Prior
from autotuner.search.sampler.normal import log_probability
from autotuner.search.sampler.priors import (
    learn_peaks,
    learn_times,
    memory_prior,
    scale_inflation,
    time_prior,
)
from autotuner.search.sampler.proxies import ProxyTrials, proxy_trials
from autotuner.search.sampler.transfer import ProxyPoints, ProxyRun
from autotuner.search.space.trainers import trial_rules

_STEP_PARTS = tuple(f.name for f in fields(StepTime))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyResult:
    """The results of a proxy trial: a trial that runs a smaller layout in place of a full-size layout.

    If a trial runs the full-size layout in the full-size job, its results count as an ordinary observation.
    """

    layout: Layout
    """Layout of the full-size job for which the trial is a proxy."""
    run: ProxyRun
    """Job and layout that the proxy trial ran."""
    step_time_s: float | None = None
    """Measured step time of the trial; None if it was not measured."""
    fits: bool | None = None
    """True if the trial ran, False if it ran out of memory; None if it ended in another way."""
    peak_bytes: float | None = None
    """Peak bytes that the rank with most memory had allocated, if they were measured."""
    measured_parts: tuple[str, ...] = ()
    """Fields of ``StepTime`` that the trial ran exactly as ``layout`` does (``ProxyTrial.measured_parts``)."""


class FullSize:
    """Estimates a job's full-size layouts from the cost model and from proxy trials, which run smaller layouts.

    The estimate starts from a prior: the same normal distribution that gives predictions their intervals. Results of
    proxy trials make the intervals narrower. If the errors of the proxy trials are larger than the prior allows, the
    intervals become wider instead (``scale_inflation``). The search itself uses another prior, with larger errors of
    the parts of a step (``times_as_searched``), so that it learns from the first trials of a job. Each proxy trial is
    predicted only once.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._proxy_points = ProxyPoints(job, times=times_in_intervals)
        self._last: tuple[tuple[Layout, ...], LayoutColumns, PredictionColumns] | None = None

    def estimates(self, layouts: Sequence[Layout], trials: Iterable[ProxyResult]) -> list[FullSizeEstimate]:
        """Return the estimated results of full-size layouts, given the results of proxy trials (of smaller layouts).

        Args:
            layouts: Layouts of the job; every one must be legal.
            trials: Results of proxy trials, of these or of other layouts.
        """
        results = list(trials)
        if not layouts:
            return []
        columns, predictions = self._predicted(tuple(layouts))
        (times, own), peaks = self._seconds(columns, predictions, results), self._peaks(columns, predictions, results)
        log_limit = math.log(self._job.cluster.accelerator.memory_bytes)
        fits, peak_bytes = np.exp(log_probability(log_limit - peaks.mean, np.sqrt(peaks.variance))), np.exp(peaks.mean)
        if not any(trial.fits is not None for trial in results):
            fits = predictions.fit_probability
        own_errors = np.expm1(Z80 * np.sqrt(own)).tolist()
        timed = [trial for trial in results if trial.step_time_s is not None]
        found = []
        for number, layout in enumerate(layouts):
            step_time = row(predictions.step_time, number)
            present = [part for part in _STEP_PARTS if getattr(step_time, part) > 0]
            ran = {part for trial in timed if trial.layout == layout for part in trial.measured_parts}
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
        """Return the layouts as columns with their predictions.

        The result is cached for as long as the same layouts are requested.
        """
        if self._last is None or self._last[0] != layouts:
            columns = LayoutColumns.from_layouts(layouts)
            self._last = layouts, columns, predict(columns, self._job)
        return self._last[1:]

    def _seconds(
        self, columns: LayoutColumns, predictions: PredictionColumns, results: Sequence[ProxyResult]
    ) -> tuple[Estimate, Floats]:
        """Return the estimates of log step times, and the part of their variances that the layouts do not share."""
        timed = [(trial, trial.step_time_s) for trial in results if trial.step_time_s is not None]
        points = self._proxy_points.times([(trial.layout, trial.run) for trial, _ in timed]) if timed else None
        prior = times_in_intervals(columns, predictions, self._job)
        belief = learn_times(prior, {}, related=points, related_step_time_s=[seconds for _, seconds in timed])
        rows, widened = np.arange(len(columns)), scale_inflation(belief) ** 2
        estimate = belief.at(rows)
        estimate = replace(estimate, variance=widened * estimate.variance)
        return estimate, np.maximum(estimate.variance - widened * max(0.0, belief.shared_variance(rows)), 0.0)

    def _peaks(
        self, columns: LayoutColumns, predictions: PredictionColumns, results: Sequence[ProxyResult]
    ) -> Estimate:
        prior = memory_prior(columns, predictions.memory)
        limit_bytes = float(self._job.cluster.accelerator.memory_bytes)
        ended = [trial for trial in results if trial.fits is not None]
        related = None
        if ended:
            proxies = [(trial.layout, trial.run) for trial in ended]
            memory = self._proxy_points.memory
            seen = [memory(one.run, fits=bool(one.fits), peak_bytes=one.peak_bytes) for one in ended]
            related = self._proxy_points.peaks(proxies, seen)
        return learn_peaks(prior, limit_bytes, {}, related).at(np.arange(len(columns)))


def times_in_intervals(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """Return the prior of each layout's log step time from which the intervals of predictions are computed.

    A search uses another prior: see ``times_as_searched``.
    """
    return time_prior(layouts, predictions, interval_error(layouts, job))


# ---------------------------------------------------------------- of a sweep
class SmallScale:
    """The proxy trials of a sweep whose trials run on fewer ranks than its job has. They run smaller layouts.

    Args:
        request: The request of the sweep, which names a cluster for its trials.
        cluster: The cluster of the trials, with the memory that a rank of a trial may use.
        layouts: Every legal layout of the job.
    """

    def __init__(self, request: SweepRequest, cluster: Cluster, layouts: LayoutColumns) -> None:
        self._job = request.trial_job
        self._cluster = cluster
        self._trials = proxy_trials(
            self._job,
            layouts,
            cluster,
            trial_rules(request.trainer),
            whole_model=request.trainer is not None,  # the trainer trains the model that it was given
        )
        self._full_size = FullSize(self._job)
        self._proxies: dict[Layout, ProxyTrial] = {}
        self._growth: dict[Layout, float] = {}

    @property
    def trials(self) -> ProxyTrials:
        """The proxy trials (trials of smaller layouts), each with the full-size layouts in whose place it runs."""
        return self._trials

    @cached_property
    def left_out(self) -> str:
        """End of a sentence that says how many legal layouts have no proxy trial, and why; empty if all have one.

        A proxy trial runs a smaller layout in place of a full-size one.
        """
        if not self._trials.refused:
            return ""
        number, (why, _) = self._trials.num_refused, self._trials.refused[0]
        return (
            f"; {number} more layouts have no proxy trial on {self._cluster.world_size} ranks, most of "
            f"them because {why}"
        )

    def proxy_of(self, layout: Layout) -> ProxyTrial:
        """Return the proxy trial (a smaller trial on fewer ranks) that runs in place of a layout."""
        if layout not in self._proxies:
            self._proxies[layout] = self._trials.trial_of(layout)
        return self._proxies[layout]

    def run_of(self, layout: Layout) -> ProxyRun:
        """Return the smaller layout that the proxy trial of a full-size layout runs, with the smaller job."""
        proxy = self.proxy_of(layout)
        return ProxyRun(job=proxy.job(self._job, self._cluster), layout=proxy.layout)

    def growth(self, layout: Layout) -> float:
        """Return the predicted step time of a layout, divided by that of its proxy trial (a smaller trial)."""
        if layout not in self._growth:
            small = self.run_of(layout)
            few_s = predict_one(small.layout, small.job).step_time.total_s
            self._growth[layout] = predict_one(layout, self._job).step_time.total_s / few_s
        return self._growth[layout]

    def estimates(self, trials: Iterable[Trial], reference_flop_per_s: float) -> Mapping[str, TrialEstimate]:
        """Return the estimated full-size results of each measured proxy trial, given the results of all trials.

        The keys are trial ids.

        Args:
            trials: Trials of the sweep.
            reference_flop_per_s: Reference peak of one rank, by which MFU is computed.
        """
        proxies = [trial for trial in trials if trial.proxy is not None and trial.state.finished]
        measured = [trial for trial in proxies if trial.ran_measurement is not None]
        found = self._full_size.estimates([trial.layout for trial in measured], map(self._result, proxies))
        return {
            trial.id: self._estimate(trial, full_size, reference_flop_per_s)
            for trial, full_size in zip(measured, found, strict=True)
        }

    def _result(self, trial: Trial) -> ProxyResult:
        is_process = self._trials.whole_model and self._cluster.accelerator.kind == "cpu"
        peaks = trial.ran_measurement.peak_bytes if trial.ran_measurement and not is_process else ()
        return ProxyResult(
            layout=trial.layout,
            run=self.run_of(trial.layout),
            step_time_s=_step_time_s(trial),
            fits=_fits(trial),
            peak_bytes=max(peaks, default=None),
            measured_parts=self.proxy_of(trial.layout).measured_parts,
        )

    def _estimate(self, trial: Trial, full_size: FullSizeEstimate, reference_flop_per_s: float) -> TrialEstimate:
        job, step_s = self._job, full_size.step_time_s
        model_flop = job.model.model_flop_per_step(job.workload)
        # In the whole job, an accelerator is busy for about the same share of the time.
        power_w = None if trial.ran_measurement is None else trial.ran_measurement.power_w
        return TrialEstimate(
            full_size=full_size,
            tokens_per_s=job.workload.tokens_per_step / step_s,
            mfu=model_flop / (reference_flop_per_s * job.cluster.world_size * step_s),
            num_trial_ranks=trial.ran.world_size,
            num_ranks=job.cluster.world_size,
            is_simulated=trial.ran_measurement is not None and trial.ran_measurement.is_simulated,
            resource_cost=resource_cost_of(trial.layout, job, trial.prediction, power_w=power_w),
        )


def _step_time_s(trial: Trial) -> float | None:
    """Return the step time of the proxy trial: measured, or the median of the steps before it was pruned."""
    if trial.ran_measurement is not None:
        return trial.ran_measurement.step_time_s
    steps = [step.step_time_s for step in trial.steps if step.is_measured]
    return statistics.median(steps) if steps and trial.state is TrialState.PRUNED else None


def _fits(trial: Trial) -> bool | None:
    """Return True if the proxy trial fitted in memory, False if it did not; None if it ended before that was known."""
    if trial.failure is not None:
        return False if trial.failure.kind is FailureKind.OOM else None
    return True if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) else None
