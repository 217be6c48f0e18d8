"""Proposals: the layout to try next, and the improvement that is expected of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, cast

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.job import Job
from autotuner.core.measurement import ResourceCost
from autotuner.core.objective import WORTHWHILE_GAIN, Metric, Objective
from autotuner.costmodel.resource_cost import ResourceCostColumns, value_per_step
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.sampler.gaussian_model import Estimate, Posterior, Prior, Related
from autotuner.search.sampler.normal import log_expected_gain, log_probability
from autotuner.search.sampler.observations import Evidence
from autotuner.search.sampler.pareto import (
    LEAST_MARGIN,
    Frontier,
    Outcomes,
    log_expected_volume_gain,
    reference_below,
    steps_to_enter,
)
from autotuner.search.sampler.priors import learn_peaks, learn_times, past_noise, scale_inflation
from autotuner.search.sampler.transfer import OtherJobs


@dataclass(frozen=True, eq=False, kw_only=True)
class FrontFactors:
    """The part of each layout's value that does not depend on its step time, for each metric of a Pareto front.

    Once a step time is known, the values follow from it. For a rate, such as tokens per second, this part is the value
    times the step time (tokens per step). For any other metric, it is the value itself.
    """

    log_value_per_step: Floats
    """Logarithms of shape (rows, metrics). For a rate, of the value times the step time; for any other metric, of the
    value itself."""
    is_rate: Booleans
    """True for rates, which are metrics that fall as the step time rises."""

    @classmethod
    def of(cls, metrics: Sequence[Metric], job: Job, resource_costs: ResourceCostColumns | None, num_rows: int) -> Self:
        """Return, for each layout of a table, the part of each metric that does not depend on the step time.

        Args:
            metrics: Metrics of the Pareto front.
            job: The job.
            resource_costs: Modelled resource cost of every layout; None: no metric needs it.
            num_rows: Number of layouts in the table.
        """
        values_per_step = [_value_per_step(metric, job, resource_costs, num_rows) for metric in metrics]
        return cls(
            log_value_per_step=np.log(np.stack(values_per_step, axis=1)),
            is_rate=np.array([one.is_rate for one in metrics]),
        )

    def outcomes(self, rows: Integers | slice, times: Estimate, inflation: float) -> Outcomes:
        """Return the uncertain results of some layouts in all metrics, from the distributions of their step times.

        Args:
            rows: Indices of the layouts in the table.
            times: Mean and variance of the log step time in seconds of each of these layouts.
            inflation: Factor for the standard deviations of ``times``.
        """
        deviation = inflation * np.sqrt(times.variance)
        return Outcomes(
            log_value_per_step=self.log_value_per_step[rows], is_rate=self.is_rate, mean=times.mean, deviation=deviation
        )

    def frontier(self, log_step_s: Mapping[int, float], others: Integers, expected_log_s: Floats) -> Frontier:
        """Return the Pareto front of the layouts with a known step time, with a reference point for its hypervolume.

        For a rate (a metric that depends on the step time), the reference is lower than the front of the known values
        and of the expected values of ``others``. For any other metric, the reference is lower than the worst layout of
        the table, because any layout may turn out to be fast.

        Args:
            log_step_s: Known log step times, by index of the layout in the table.
            others: Indices of layouts that may be on the front.
            expected_log_s: Expected log step time of every layout of the table.
        """
        known = self.values(np.array([*log_step_s], dtype=np.int64), np.array([*log_step_s.values()]))
        expected = self.values(others, expected_log_s[others])
        below_front = reference_below(np.concatenate([known, expected]))
        below_all = self.log_value_per_step.min(axis=0) - LEAST_MARGIN
        return Frontier.of(known, np.where(self.is_rate, below_front, below_all))

    def values(self, rows: Integers, log_step_s: Floats) -> Floats:
        """Return the log values of some layouts in each metric, if the layouts have these log step times.

        Args:
            rows: Indices of the layouts in the table.
            log_step_s: Log step time in seconds of each of these layouts.
        """
        values: Floats = self.log_value_per_step[rows] - np.where(self.is_rate, log_step_s[:, None], 0.0)
        return values


def log_expected_entry(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Return, for each layout, the log of its expected margin below the step time at which it joins the Pareto front.

    The margin is the difference of two log step times: the one at which the layout joins the front
    (``steps_to_enter``), and that of the layout. A layout that is too slow has the margin 0. The function takes one
    pass for each point of the front. It orders layouts much as the expected increase of the hypervolume does.
    """
    below = steps_to_enter(outcomes, frontier) - outcomes.mean
    possible = np.isfinite(below)
    gain: Floats = np.where(possible, log_expected_gain(np.where(possible, below, 0.0), outcomes.deviation), -np.inf)
    return gain


def _value_per_step(metric: Metric, job: Job, resource_costs: ResourceCostColumns | None, num_rows: int) -> Floats:
    if metric.is_rate:
        return value_per_step(Objective(metric=metric), job, resource_costs, num_rows)
    return np.array(metric.share(cast("ResourceCost", resource_costs)))  # its formulas hold for columns


_MAX_EXACT = 1 << 12
"""Largest number of rows whose residuals are computed exactly. Of larger tables only the most promising rows are; the
others would need an exceptional residual to be the best."""

_BEHIND = 1e6
"""Penalty for rows that may not be proposed, in units of log expected gain. It is larger than any difference between
rows, so that they come last."""

_MIN_FIT_PROBABILITY = 1e-3
"""Smallest probability to fit for which a layout is tried, however fast it would be."""

EVEN_CHANCE = 0.5
"""Probability to fit below which a layout is called a long shot."""

_WORTH_A_LONG_SHOT = WORTHWHILE_GAIN
"""Expected gain, including the risk to run out of memory, from which a long shot may be tried before layouts that are
likely to fit."""

_MOST_LOST, _SURE = 0.05, 0.9
"""Share of out-of-memory trials, and probability. If more than this share of the trials ran out of memory, the model
was too optimistic for this job, and only layouts with at least this probability count as fitting. The aim is that at
most a tenth of a sweep's trials is lost; with a tenth as this limit, a simulated sweep stays slightly above it."""

_CAUTION = 10.0
"""Weight of a probability to fit below one half, before the first measurement. The fastest layout that will probably
fit costs one trial if it does not fit, and slower, safer ones remain. In replays of arXiv 2311.05610 this takes 2.5 to
3.3 trials on average. MFU times probability, which begins with safe layouts, takes 3.0 to 3.8."""

_AS_GOOD, _AS_LIKELY = 0.01, 0.1
"""Tolerances before the first measurement. Layouts whose values differ by a hundredth count as equally good, which is
less than any interval of predictions. Layouts whose probabilities to fit differ by a tenth count as equally likely to
fit. In replays of the published sheets, this changes the first layout of one sheet in 53."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Beliefs:
    """The priors of a search before its first trial: for the step time and the peak memory of every layout."""

    times: Prior
    """Model of the log step time in seconds."""
    peaks: Prior
    """Model of the log peak memory in bytes."""
    limit_bytes: float
    """Bytes that a rank may allocate."""
    value_per_step: Floats
    """Value of the objective times the step time, for each row."""
    front: FrontFactors | None = None
    """Parts of the values that do not depend on the step time, by metric, if the search is for a Pareto front; None:
    the search is for the best value only."""
    others: OtherJobs | None = None
    """Proxy trials of rows, and trials from before the search; None: there are none."""

    def after_peaks(self, evidence: Evidence) -> Posterior:
        """Return the posterior of each layout's log peak memory in bytes, after the results of the search's trials."""
        small = evidence.small.memory
        related = self.others.peaks(list(small), list(small.values())) if self.others else None
        return learn_peaks(self.peaks, self.limit_bytes, evidence.memory, related)

    def after_times(
        self, full_s: Mapping[int, float], small_s: Mapping[int, float], related: Related | None = None
    ) -> Posterior:
        """Return the posterior of each layout's log step time in seconds, after trials of layouts and proxy trials.

        Args:
            full_s: Measured step times of full-size layouts, by index of the layout.
            small_s: Measured step times of proxy trials (smaller trials), by index of the full-size layout.
            related: Points of the past trials, then of the proxy trials in the order of ``small_s``; None: compute them
                here.
        """
        if related is None and self.others:
            related = self.others.times(list(small_s))
        past_s = self.others.past_step_time_s if self.others else []
        return learn_times(
            self.times,
            full_s,
            related=related,
            related_step_time_s=[*past_s, *small_s.values()],
            related_noise=self._past_noise,
        )

    @cached_property
    def _past_noise(self) -> list[float]:
        """Return the variance of the noise of each past trial."""
        past = self.others.times([]) if self.others else None
        if self.others is None or past is None:
            return []
        noise: list[float] = past_noise(self.times, past, self.others.past_step_time_s).tolist()
        return noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The layout to try next, with its expected gain and its probability to fit in memory."""

    row: int
    """Number of the proposed row in the table."""
    expected_gain: float
    """Relative increase of the best value, or of the front's hypervolume, that is expected from the most promising
    trial, including the risk that it runs out of memory; infinite before the first measurement."""
    fit_probability: float
    """Probability that the proposed layout fits in memory."""
    long_shot: LongShot | None = None
    """Reason for a proposal that will probably not fit; None if it is likely to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongShot:
    """The reason why a layout is proposed although its probability to fit in memory is below one half."""

    fit_probability: float
    """Probability that the layout fits in memory."""
    expected_gain: float
    """Expected improvement of the layout's trial, including the risk to run out of memory; infinite before the first
    measurement."""
    likely_gain: float | None
    """Largest expected improvement among the untried layouts that are likely to fit; None if there are none left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBelief:
    """The ratio of expected to predicted peak memory of the untried layouts, as learnt from the trials so far.

    It also says how many untried layouts are likely to fit in memory.
    """

    factor: float
    """Ratio of the peak that the model now expects to the predicted peak; the geometric mean over the layouts."""
    low: float
    """Lower end of the 80 % interval of this ratio for one layout."""
    high: float
    """Upper end of this interval."""
    num_untried: int
    """Number of layouts without a trial."""
    num_likely: int
    """Number of these layouts that fit with a probability of one half or more."""


def propose(
    beliefs: Beliefs,
    evidence: Evidence,
    *,
    cost_exponent: float,
    tie_breaker: np.random.Generator,
    among: Integers | None = None,
) -> Proposal | None:
    """Return the untried layout whose trial has the highest expected improvement for its cost.

    The result is None if no untried layout is likely enough to fit in memory. With a Pareto front, the improvement is
    the increase of the front's hypervolume. Before the first measurement, the function chooses the layout with the
    highest expected value among those that will probably fit. Among layouts that are about as good, it chooses the one
    that is most likely to fit.

    A layout whose probability to fit is below one half is proposed only in two cases: no layout that is likely to fit
    is left, or the layout's trial is expected to gain at least ``WORTHWHILE_GAIN`` and more than any layout that is
    likely to fit.

    Args:
        beliefs: Priors of the step time and the memory of every layout.
        evidence: Results of the trials.
        cost_exponent: Weight of the step time as cost: 0 for none, 1 for a cost proportional to the step time.
        tie_breaker: Generator for the choice between layouts that are equally good, for example because an option has
            no effect on a layout.
        among: Indices of the only layouts to choose from; None: all.
    """
    outlook = _Outlook.of(beliefs, evidence)
    untried = _untried(len(beliefs.value_per_step), evidence.tried)
    rows = _most_promising(outlook, untried if among is None else np.intersect1d(untried, among))
    times, log_fits = outlook.times.at(rows), outlook.log_fits(outlook.peaks.at(rows))
    log_acquisition = outlook.log_acquisition(times, log_fits, rows)
    if not (log_acquisition > -np.inf).any():
        return None
    log_acquisition = np.where(outlook.is_justified(log_acquisition, log_fits), log_acquisition, -np.inf)
    score = log_acquisition - cost_exponent * times.mean
    if outlook.is_first:
        score = np.where(_is_safest(score, log_fits), score, -np.inf)
    chosen = tie_breaker.choice(np.flatnonzero(score >= score.max() - 1e-9))  # equal except for rounding
    return Proposal(
        row=int(rows[chosen]),
        expected_gain=math.inf if outlook.is_first else outlook.gain(float(log_acquisition.max())),
        fit_probability=math.exp(log_fits[chosen]),
        long_shot=_long_shot(outlook, log_acquisition, log_fits, int(chosen)),
    )


def memory_belief(beliefs: Beliefs, evidence: Evidence) -> MemoryBelief:
    """Return the ratio of expected to predicted peak memory of the untried layouts, as learnt from trials so far."""
    peaks = beliefs.after_peaks(evidence).at_all_rows()
    untried = _untried(len(beliefs.value_per_step), evidence.tried)
    log_factor = float((peaks.mean - beliefs.peaks.log_predicted)[untried].mean()) if untried.size else 0.0
    deviation = float(np.sqrt(peaks.variance[untried].mean())) if untried.size else 0.0
    return MemoryBelief(
        factor=math.exp(log_factor),
        low=math.exp(log_factor - Z80 * deviation),
        high=math.exp(log_factor + Z80 * deviation),
        num_untried=untried.size,
        num_likely=int(np.count_nonzero(peaks.mean[untried] <= math.log(beliefs.limit_bytes))),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Outlook:
    """The state of the model after the trials so far."""

    beliefs: Beliefs
    times: Posterior
    peaks: Posterior
    scale_inflation: float
    """Factor by which the standard deviations of step times are increased."""
    log_step_s: Mapping[int, float]
    """Log step times of rows whose trial completed or is expected to complete."""
    best_value: float | None
    """Best value of these rows, which a proposal must beat."""
    is_first: bool
    """True if nothing was measured yet."""
    lost_share: float
    """Share of the trials so far that ran out of memory."""

    @classmethod
    def of(cls, beliefs: Beliefs, evidence: Evidence) -> _Outlook:
        """Return the state of the model, in which pending trials count with their expected results.

        So no two pending trials test the same. A row whose proxy trial completed, and that will probably fit, counts
        with its expected value.
        """
        peaks = beliefs.after_peaks(evidence)
        times = beliefs.after_times(evidence.step_time_s, evidence.small.step_time_s)
        full = _expected_step_s(evidence.pending, times, peaks, beliefs.limit_bytes)
        small = _expected_small_s(beliefs, evidence, peaks)
        ended = _that_fit(tuple(evidence.small.completed), peaks, beliefs.limit_bytes)
        estimated = np.array([*full, *small, *ended], dtype=np.int64)
        known = [] if evidence.best_value is None else [evidence.best_value]
        is_first = not known and not ended.size
        estimated_log_s = times.at(estimated).mean
        known += (beliefs.value_per_step[estimated] / np.exp(estimated_log_s)).tolist()
        measured_log_s = {row: math.log(evidence.step_time_s[row]) for row in evidence.completed}
        then = times
        if full or small:
            then = beliefs.after_times({**evidence.step_time_s, **full}, {**evidence.small.step_time_s, **small})
        return cls(
            beliefs=beliefs,
            times=then,
            peaks=peaks,
            scale_inflation=scale_inflation(times),
            log_step_s=measured_log_s | dict(zip(estimated.tolist(), estimated_log_s.tolist(), strict=True)),
            best_value=max(known, default=None),
            is_first=is_first,
            lost_share=_lost_share(evidence),
        )

    def log_fits(self, peaks: Estimate) -> Floats:
        """Return the log probability that each peak is within the memory limit."""
        return log_probability(math.log(self.beliefs.limit_bytes) - peaks.mean, np.sqrt(peaks.variance))

    def log_acquisition(self, times: Estimate, log_fits: Floats, rows: Integers | slice) -> Floats:
        """Return the log of the expected rise above the best log value; without a best, the log value with a penalty.

        The penalty is for rows that may not fit. In a search for a Pareto front, the result is the log of the expected
        rise of the hypervolume; for all rows at once, it is an approximation with a similar order.
        """
        log_value = np.log(self.beliefs.value_per_step[rows]) - times.mean
        if self.best_value is None:
            expected = log_value + _CAUTION * np.minimum(log_fits - math.log(0.5), 0.0)
        elif self.beliefs.front is not None:
            outcomes = self.beliefs.front.outcomes(rows, times, self.scale_inflation)
            log_gain = log_expected_entry if isinstance(rows, slice) else log_expected_volume_gain
            expected = log_gain(outcomes, self.frontier) + log_fits
        else:
            above = log_value - math.log(self.best_value)
            expected = log_expected_gain(above, self.scale_inflation * np.sqrt(times.variance)) + log_fits
        return np.where(log_fits < math.log(_MIN_FIT_PROBABILITY), -np.inf, expected)

    def is_justified(self, log_acquisition: Floats, log_fits: Floats) -> Booleans:
        """Return the rows that may be proposed: those likely to fit, and unlikely ones with a much larger gain.

        If too many trials ran out of memory, only rows that are sure to fit may be proposed. If no row is likely
        enough, less likely rows may be proposed too.
        """
        is_open = log_acquisition > -np.inf
        for chance in (_SURE, EVEN_CHANCE) if self.lost_share > _MOST_LOST else (EVEN_CHANCE,):
            is_likely = is_open & (log_fits >= math.log(chance))
            if is_likely.any():
                break
        else:
            return is_open
        if self.is_first:
            return is_likely
        least_gain = max(_WORTH_A_LONG_SHOT, self.gain(float(log_acquisition[is_likely].max())))
        justified: Booleans = is_likely | (is_open & (log_acquisition > self._log_acquisition_of(least_gain)))
        return justified

    @cached_property
    def frontier(self) -> Frontier:
        """Return the known Pareto front, with a reference below the worst values that are expected."""
        assert self.beliefs.front is not None
        likely = np.flatnonzero(self.log_fits(self.peaks.at_all_rows()) >= math.log(0.5))
        return self.beliefs.front.frontier(self.log_step_s, likely, self.times.at_all_rows().mean)

    def gain(self, log_acquisition: float) -> float:
        """Return the share by which the best value or the hypervolume is expected to rise.

        The result is infinite if there is no value yet.
        """
        if self.beliefs.front is None:
            return math.expm1(math.exp(log_acquisition))
        return math.exp(log_acquisition) / self.frontier.volume if self.frontier.volume else math.inf

    def _log_acquisition_of(self, gain: float) -> float:
        """Return the inverse function of ``gain``."""
        if self.beliefs.front is None:
            return math.log(math.log1p(gain))
        return math.log(gain * self.frontier.volume) if self.frontier.volume else -math.inf


def _long_shot(outlook: _Outlook, log_acquisition: Floats, log_fits: Floats, chosen: int) -> LongShot | None:
    """Return the reason for proposing the chosen row if it is a long shot, otherwise None."""
    is_likely = (log_fits >= math.log(EVEN_CHANCE)) & (log_acquisition > -np.inf)
    if is_likely[chosen]:
        return None
    return LongShot(
        fit_probability=math.exp(log_fits[chosen]),
        expected_gain=math.inf if outlook.is_first else outlook.gain(float(log_acquisition[chosen])),
        likely_gain=outlook.gain(float(log_acquisition[is_likely].max())) if is_likely.any() else None,
    )


def _lost_share(evidence: Evidence) -> float:
    """Return the share of trials with a known memory result that ran out of memory."""
    results = [*evidence.memory.values(), *evidence.small.memory.values()]
    return sum(not trial.fits for trial in results) / len(results) if results else 0.0


def _is_safest(score: Floats, log_fits: Floats) -> Booleans:
    """Return the rows that are nearly as good as the best, and nearly as likely to fit as the likeliest of those."""
    about_best = score >= score.max() - _AS_GOOD
    safest: Booleans = about_best & (log_fits >= log_fits[about_best].max() - _AS_LIKELY)
    return safest


def _untried(num_rows: int, tried: Collection[int]) -> Integers:
    is_open = np.ones(num_rows, dtype=np.bool_)
    is_open[list(tried)] = False
    return np.flatnonzero(is_open)


def _most_promising(outlook: _Outlook, rows: Integers) -> Integers:
    if rows.size <= _MAX_EXACT:
        return rows
    log_fits = outlook.log_fits(outlook.peaks.at_all_rows())
    log_acquisition = outlook.log_acquisition(outlook.times.at_all_rows(), log_fits, slice(None))
    log_acquisition[rows] -= np.where(outlook.is_justified(log_acquisition[rows], log_fits[rows]), 0.0, _BEHIND)
    return rows[np.argpartition(-log_acquisition[rows], _MAX_EXACT)[:_MAX_EXACT]]


def _expected_step_s(
    pending: tuple[int, ...], times: Posterior, peaks: Posterior, limit_bytes: float
) -> Mapping[int, float]:
    """Return the expected step times of the pending rows that will probably fit.

    Rows that will probably not fit are left out.
    """
    rows = _that_fit(pending, peaks, limit_bytes)
    return {int(row): math.exp(mean) for row, mean in zip(rows, times.at(rows).mean, strict=True)}


def _expected_small_s(beliefs: Beliefs, evidence: Evidence, peaks: Posterior) -> Mapping[int, float]:
    """Return the expected step times of the proxies of pending rows that will probably fit."""
    small = evidence.small.step_time_s
    rows = _that_fit(evidence.small.pending, peaks, beliefs.limit_bytes).tolist()
    if beliefs.others is None or not rows or (related := beliefs.others.times([*small, *rows])) is None:
        return {}
    seen, pending = np.split(np.arange(len(related)), [len(related) - len(rows)])
    times = beliefs.after_times(evidence.step_time_s, small, related.take(seen))
    return dict(zip(rows, np.exp(times.at(related.points.take(pending)).mean).tolist(), strict=True))


def _that_fit(pending: tuple[int, ...], peaks: Posterior, limit_bytes: float) -> Integers:
    rows = np.array(pending, dtype=np.int64)
    return rows[peaks.at(rows).mean <= math.log(limit_bytes)]
