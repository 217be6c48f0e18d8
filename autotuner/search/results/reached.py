"""What a trial reached, measured or estimated or simulated, and how well that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Figures, Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import RankedTime, Trial

Source = Literal["measured", "estimated", "simulated"]
"""Where a figure comes from: a run of the layout, runs on fewer ranks, or no run at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A trial with what it reached.

    Attributes:
        number: Of the trial, inside its sweep.
        label: The layout in short.
        source: What its figures have to be called.
        said: Where an estimate comes from; empty of anything else.
        value: What the sweep maximises.
        mfu: As the sweep counts it: under its fault trace, where it has one, as throughput and step time are.
        step_time_s: Of a measured trial the median of its steps, or the mean of those under the fault trace.
        relative_error: Half-width of the interval of step time, throughput and MFU, as a share of them.
        confidence: How often the truth lies in that interval: 0.95 of what was measured, 0.8 of an estimate.
        peak_bytes: Of the fullest rank; None where nobody told.
        limit_bytes: What a rank may allocate.
        price_per_million_tokens: In US dollars; None where the cluster's price is not known.
        healthy_mfu: While no link is slow, where that is not what the sweep counts; else None.
    """

    trial_id: str
    number: int
    label: str
    layout: Layout
    source: Source
    said: str
    value: float
    mfu: float
    tokens_per_s: float
    step_time_s: float
    relative_error: float
    confidence: float
    peak_bytes: float | None
    limit_bytes: float
    price_per_million_tokens: float | None
    healthy_mfu: float | None = None

    @classmethod
    def of(cls, trial: Trial, request: SweepRequest) -> Reached:
        """Of a trial that reached something."""
        reached = trial.reached
        assert reached is not None, "it was measured, and estimated where less of it ran"
        counted = request.objective.counted(reached)
        error, confidence, peak_bytes = _known(reached, counted)
        return cls(
            trial_id=trial.id,
            number=trial.number,
            label=str(trial.layout),
            layout=trial.layout,
            source=source_of(reached),
            said=reached.said if isinstance(reached, TrialEstimate) else "",
            value=request.objective.value(reached),
            mfu=counted.mfu,
            tokens_per_s=counted.tokens_per_s,
            step_time_s=counted.step_time_s,
            relative_error=error,
            confidence=confidence,
            peak_bytes=peak_bytes,
            limit_bytes=float(request.trial_job.cluster.accelerator.memory_bytes),
            price_per_million_tokens=_price(request, counted.tokens_per_s),
            healthy_mfu=None if counted is reached else reached.mfu,
        )


def source_of(reached: Measurement | TrialEstimate) -> Source:
    """What the figures have to be called; an estimate says by itself whether it rests on simulated trials."""
    if isinstance(reached, TrialEstimate):
        return "estimated"
    return "simulated" if reached.is_simulated else "measured"


def _known(reached: Measurement | TrialEstimate, counted: Figures) -> tuple[float, float, float | None]:
    """Half-width of the interval of what counts, how often the truth lies in it, and the peak."""
    if isinstance(reached, TrialEstimate):
        return reached.full_size.relative_error, 0.8, reached.full_size.peak_bytes
    return counted.step_time_error_s / counted.step_time_s, 0.95, max(reached.peak_bytes, default=None)


def _price(request: SweepRequest, tokens_per_s: float) -> float | None:
    cluster = request.job.cluster
    per_s = cluster.price_per_accelerator_hour * cluster.world_size / 3600
    return 1e6 * per_s / tokens_per_s if per_s else None


def _worth_per_step(objective: Objective, reached: Measurement | TrialEstimate) -> float:
    """As ``RankedTime`` has it."""
    if not objective.reads_footprint:
        return 1.0
    return objective.value(reached) * objective.counted(reached).step_time_s


def ranked_times(objective: Objective, trials: Iterable[Trial]) -> Sequence[RankedTime]:
    """What the order of ranked trials rests on, in that order; as a store tells it, where the trials are at hand."""
    every = list(trials)
    repeated: dict[int, list[float]] = {}
    for trial in every:
        if trial.repeats is not None and trial.reached is not None:
            repeated.setdefault(trial.repeats, []).append(objective.counted(trial.reached).step_time_s)
    return [
        RankedTime(
            trial_id=trial.id,
            step_time_s=objective.counted(trial.reached).step_time_s,
            step_time_interval_s=objective.counted(trial.reached).step_time_error_s,
            noise_floor=trial.measurement.noise_floor if trial.measurement else None,
            repeated_s=tuple(repeated.get(trial.number, ())),
            worth_per_step=_worth_per_step(objective, trial.reached),
        )
        for trial in objective.ranked(every)
        if trial.reached is not None
    ]
