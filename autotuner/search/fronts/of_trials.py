"""Trials as points of a front: their values by every metric, which of them no other beats, which would add to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.measurement import Footprint
from autotuner.core.objective import WORTHWHILE_GAIN, Metric, Objective
from autotuner.core.trial import Trial
from autotuner.search.fronts.dominance import non_dominated


@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """A trial with its value by every metric of a front."""

    trial: Trial
    values: tuple[float, ...]


def valued(objective: Objective, metrics: Sequence[Metric], trials: Iterable[Trial]) -> list[Valued]:
    """Those of the trials that reached something, by all of the metrics; one that does not tell some is left out.

    Args:
        objective: Which of a trial's figures count: of healthy steps, or under faults.
        metrics: Of the front.
        trials: Any.
    """
    return [
        Valued(
            trial=trial,
            values=tuple(metric.of(objective.counted(trial.reached), trial.reached.footprint) for metric in metrics),
        )
        for trial in trials
        if trial.reached is not None and all(_tells(trial.reached.footprint, metric) for metric in metrics)
    ]


def on_front(objective: Objective, trials: Iterable[Trial]) -> list[Trial]:
    """The trials that no other of them dominates by the metrics of the objective's front, in their order."""
    every = valued(objective, objective.front, trials)
    return [one.trial for one, stays in zip(every, non_dominated(log_values(every)), strict=True) if stays]


def adds_to_front(values: Sequence[float], others: Iterable[Sequence[float]]) -> bool:
    """Whether no other comes within 1 % of these values in all of them: less than that is noise on most machines."""
    return not any(
        all((1 + WORTHWHILE_GAIN) * theirs >= own for own, theirs in zip(values, other, strict=True))
        for other in others
    )


def log_values(every: Sequence[Valued]) -> Floats:
    """Logarithms of all values: shape (trials, metrics)."""
    values: Floats = np.log(np.array([one.values for one in every], dtype=np.float64))
    return values if every else np.empty((0, 1))


def _tells(footprint: Footprint | None, metric: Metric) -> bool:
    """Whether a metric has a value where this is known beside the steps."""
    if not metric.reads_footprint:
        return True
    if footprint is None:
        return False
    match metric:
        case Metric.TOKENS_PER_JOULE:
            return footprint.power is not None and footprint.power.total_w > 0
        case Metric.TOKENS_PER_DOLLAR:
            return footprint.price_per_hour > 0
        case Metric.TOKENS_PER_KG_CO2:
            return footprint.co2_kg_per_hour > 0
        case Metric.ROBUSTNESS:
            return bool(footprint.robustness)
    return True
