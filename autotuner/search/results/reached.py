"""Reached: the results of trials and their certainty, and ranks that do not differ measurably."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.objective import Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import RankedTime, Trial, TrialState, time_to_loss_s
from autotuner.core.value import Count, value

Source = Literal["measured", "estimated", "simulated"]
"""Source of a figure: a run of the layout, runs on fewer ranks, or a simulation."""


TRIED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)
"""States of ended trials that give information about their layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The results of a trial: throughput, step time, MFU, memory and price, measured or estimated."""

    trial: int
    """Number of the trial in its sweep."""
    layout: Layout
    source: Source
    """Source of the trial's figures."""
    estimate: TrialEstimate | None
    """Estimate that the figures come from, if the layout itself never ran; otherwise None."""
    value: float
    """Value of the sweep's objective."""
    mfu: float
    """MFU as the sweep counts it: under the fault trace, if the sweep has one. Throughput and step time are counted in
    the same way."""
    tokens_per_s: float
    step_time_s: float
    """Step time: the median of the steps of a measured trial, or the mean of those under the fault trace."""
    relative_error: float
    """Half-width of the interval of step time, throughput and MFU, as a share of them."""
    confidence: float
    """Probability that the true value is in the interval: 0.95 for a measurement, 0.8 for an estimate."""
    peak_bytes: float | None
    """Peak bytes of the rank with most memory; None if they are unknown."""
    price_per_million_tokens: float | None
    """Price of a million tokens in US dollars; None if the cluster's price is unknown."""
    healthy_mfu: float | None = None
    """MFU without slow links, if the sweep counts the one under a fault trace; otherwise None."""

    @classmethod
    def of(cls, trial: Trial, request: SweepRequest) -> Reached:
        """Return the results of a trial that was measured or estimated, as its sweep counts them.

        If the sweep has a fault trace (injected link faults), they are the results under these faults.
        """
        reached = trial.reached
        assert reached is not None, "it was measured, and estimated where less of it ran"
        counted = request.objective.counted(reached)
        estimate = reached if isinstance(reached, TrialEstimate) else None
        return cls(
            trial=trial.number,
            layout=trial.layout,
            source=reached.source,
            estimate=estimate,
            value=request.objective.value(reached),
            mfu=counted.mfu,
            tokens_per_s=counted.tokens_per_s,
            step_time_s=counted.step_time_s,
            relative_error=counted.relative_error,
            confidence=0.8 if estimate else 0.95,
            peak_bytes=reached.highest_peak_bytes,
            price_per_million_tokens=_price(request, counted.tokens_per_s),
            healthy_mfu=None if counted is reached else reached.mfu,
        )


def _price(request: SweepRequest, tokens_per_s: float) -> float | None:
    cluster = request.job.cluster
    per_s = cluster.price_per_accelerator_hour * cluster.world_size / 3600
    return 1e6 * per_s / tokens_per_s if per_s else None


def ranked_times(objective: Objective, trials: Iterable[Trial]) -> Sequence[RankedTime]:
    """Return the step times of a sweep's ranked trials and of their repeats, best first, without other trial data.

    Args:
        objective: Objective of the sweep.
        trials: All trials of the sweep, including repeats.
    """
    every = list(trials)
    repeated: dict[int, list[float]] = {}
    for trial in every:
        if trial.repeats is not None and trial.reached is not None:
            repeated.setdefault(trial.repeats, []).append(objective.counted(trial.reached).step_time_s)
    return [
        RankedTime(
            trial_id=trial.id,
            step_time_s=counted.step_time_s,
            step_time_interval_s=counted.step_time_error_s,
            noise_floor=trial.ran_measurement.noise_floor if trial.ran_measurement else None,
            repeated_s=tuple(repeated.get(trial.number, ())),
            value_per_step=objective.value(trial.reached) * counted.step_time_s
            if objective.reads_resource_cost
            else 1.0,
        )
        for trial in objective.ranked(every)
        if trial.reached is not None and (counted := objective.counted(trial.reached))
    ]


# ---------------------------------------------------------------- standings: what a ranking cannot tell apart
_Z95 = 1.96
"""Number of standard deviations from the median to each end of a 95 % interval of a normal distribution."""

_RANGE_OF_TWO = 1.128
"""Expected distance between two normal random numbers, in standard deviations: d2 of any table of control charts."""

_RUN_TO_RUN, _WORTH = 0.01, 2.0
"""Relative deviation between equal runs that is assumed at first, and the number of observed pairs that this assumption
counts for. A single pair says little about the deviation."""

_CONTENDING = 6.0
"""Distance from the best trial, in standard deviations, within which another trial may still be the best. Beyond it,
the probability is below 1e-8."""

_GRID = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The certainty of a trial's rank: its probability to be the best, whether it ties with the best, and its error."""

    probability_best: float
    """Probability that this trial's layout is the best of the ranked ones, 0..1. The probabilities sum to 1."""
    tied_with_best: bool
    """True if the value differs from that of the first trial by no more than chance explains in 95 of 100 cases."""
    step_time_s: float
    """Geometric mean of the step times of all runs of the layout."""
    value: float
    """Value of the sweep's objective at that step time."""
    relative_error: float
    """Half the width of the 95 % interval of ``value``, divided by ``value``. It includes the deviation between equal
    runs."""


def standings(times: Sequence[RankedTime]) -> Mapping[str, Standing]:
    """Return the certainty of the rank of each ranked trial. The keys are trial ids, best first.

    The standard error of a step time has two sources. The first is the interval of the trial's own median. The second
    is the difference between repeated runs of the same layout, which a single run cannot show. It is estimated from an
    assumed value and from the repeated runs in the sweep, and it is smaller for the mean of several runs. Errors of
    logarithms are assumed to be normal and independent. Only the step time is uncertain: the factor that turns it into
    the objective's value is taken as exact.

    Args:
        times: Step times of the ranked trials, best first.
    """
    if not times:
        return {}
    log_s = np.array([_logs(time).mean() for time in times])
    deviations = _deviations(times)
    log_cost = log_s - np.log([time.value_per_step for time in times])  # the error of the inverse of the value
    chances = _chances_to_be_least(log_cost, deviations)
    apart = np.abs(log_cost - log_cost[0]) / np.hypot(deviations, deviations[0])
    return {
        time.trial_id: Standing(
            probability_best=float(chances[row]),
            tied_with_best=bool(apart[row] <= _Z95),
            step_time_s=math.exp(log_s[row]),
            value=math.exp(-log_cost[row]),
            relative_error=float(_Z95 * deviations[row]),
        )
        for row, time in enumerate(times)
    }


@value
class RankedTrial(Trial):
    """A trial with its rank in its sweep (1 is the best) and the certainty of that rank."""

    rank: Count | None = None
    """Rank from 1 by the sweep's objective; in a list over all sweeps, by MFU. None: the trial has no rank."""
    standing: Standing | None = None
    """Certainty of the trial's rank; None without a rank, and in a list over all sweeps."""
    value: float | None = None
    """Value of the sweep's objective; None in a list over all sweeps, and without a result."""
    time_to_loss_s: float | None = None
    """Seconds until the trial's layout reaches the loss that a plain layout has after the steps of the gate for lossy
    layouts; None if it is not known, and in a list over all sweeps."""

    @classmethod
    def of_sweep(cls, trial: Trial, request: SweepRequest, known: Mapping[str, Standing]) -> Self:
        """Return a trial with its rank in its sweep (1 is the best) and with the certainty of the rank.

        Args:
            trial: A trial of the sweep.
            request: The request of the sweep.
            known: Certainty of each ranked trial by its id, best first; a trial that is missing here has no rank.
        """
        standing = known.get(trial.id)
        return extended(
            cls,
            trial,
            rank=None if standing is None else [*known].index(trial.id) + 1,
            standing=standing,
            value=None if trial.reached is None else request.objective.value(trial.reached),
            time_to_loss_s=time_to_loss_s(trial, request.convergence_gate),
        )


def _logs(time: RankedTime) -> Floats:
    """Return the logarithms of the step times of all runs of the layout."""
    logs: Floats = np.log([time.step_time_s, *time.repeated_s])
    return logs


def _deviations(times: Sequence[RankedTime]) -> Floats:
    """Return the standard deviation of the mean log of each step time."""
    ranges = [time.noise_floor / _RANGE_OF_TWO for time in times if time.noise_floor is not None]
    num_repeats = sum(len(time.repeated_s) for time in times)
    squares = _WORTH * _RUN_TO_RUN**2 + sum(distance**2 for distance in ranges)
    squares += sum(float(((_logs(time) - _logs(time).mean()) ** 2).sum()) for time in times if time.repeated_s)
    between_runs = math.sqrt(squares / (_WORTH + len(ranges) + num_repeats))
    within_run = np.array([(time.step_time_interval_s or 0.0) / time.step_time_s / _Z95 for time in times])
    num_runs = np.array([1 + len(time.repeated_s) for time in times])
    deviations: Floats = np.hypot(within_run, between_runs) / np.sqrt(num_runs)
    return deviations


def _chances_to_be_least(means: Floats, deviations: Floats) -> Floats:
    """Return the probability that each of some independent normal quantities is the least of them.

    For each quantity, this is the integral of its density times the probabilities that all others are larger. It is
    computed by the trapezoidal rule for the quantities that may be the least, and the results are scaled so that they
    sum to 1.
    """
    highest = (means + _CONTENDING * deviations).min()
    contends = np.flatnonzero(means - _CONTENDING * deviations <= highest)
    mean, deviation = means[contends], deviations[contends]
    grid = np.linspace((mean - _CONTENDING * deviation).min(), highest, _GRID)
    z = (grid - mean[:, None]) / deviation[:, None]
    log_above = np.log(np.maximum(np.vectorize(math.erfc)(z / math.sqrt(2)) / 2, 1e-300))
    log_density = -(z**2) / 2 - np.log(deviation)[:, None]
    weights = np.exp(log_density + log_above.sum(axis=0) - log_above).sum(axis=1)
    chances = np.zeros(len(means))
    chances[contends] = weights / weights.sum()
    return chances
