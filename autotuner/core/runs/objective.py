"""Objective: what a sweep maximises, of healthy steps or under its faults. Everything that compares trials asks it."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from autotuner.core import check
from autotuner.core.jobs.job import Job
from autotuner.core.runs.estimate import TrialEstimate
from autotuner.core.runs.footprint import Footprint
from autotuner.core.runs.measurement import Measurement
from autotuner.core.runs.metric import Figures, Metric, Rates
from autotuner.core.runs.prediction import Prediction
from autotuner.core.runs.trial import Trial
from autotuner.errors import InvalidInput

__all__ = ["WORTHWHILE_GAIN", "Objective", "Weight"]

WORTHWHILE_GAIN = 0.01
"""A trial beats the best when it is better by 1 %: less than that is noise on most machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """How much one metric counts in a profile: its exponent, beside the others'."""

    metric: Metric
    weight: float

    def __post_init__(self) -> None:
        check.positive(self, "weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a sweep maximises: how values come from step times, which trials count, and what people read.

    Attributes:
        metric: What trials are ranked by, where there is no profile.
        under_faults: What counts is what a layout reaches under the fault trace of its sweep; so it is wherever there
            is one. Healthy steps stand beside.
        profile: Metrics that count together: the product of their values, each to the power of its weight over the
            weights of all rates, so that twice the speed at the same footprint is twice the value. Empty: the metric.
        front: Metrics that no trade is made between: the sweep looks for every layout that no other beats in all of
            them, and ranks by the metric or the profile meanwhile. Empty: it looks for the best alone.
    """

    metric: Metric = Metric.MFU
    under_faults: bool = False
    profile: tuple[Weight, ...] = ()
    front: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        if not self.metric.is_rate:
            rule = f"{self.metric.noun} says nothing of speed: it counts in a profile or a front, beside a rate"
            raise InvalidInput("objective.metric", self.metric.value, rule, Metric.MFU.value)
        named = [one.metric for one in self.profile]
        for field, metrics in (("profile", named), ("front", list(self.front))):
            if len(set(metrics)) < len(metrics):
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], "must name each metric once")
            if metrics and not any(one.is_rate for one in metrics):
                rule = "needs a rate, such as mfu, beside what says nothing of speed"
                raise InvalidInput(f"objective.{field}", [one.value for one in metrics], rule, Metric.MFU.value)
        if len(self.front) == 1:
            rule = "must name two metrics or more: the best by one is what the objective's metric asks for"
            raise InvalidInput("objective.front", [self.front[0].value], rule)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Everything that trials are compared by, each once."""
        ranked = tuple(one.metric for one in self.profile) or (self.metric,)
        return tuple(dict.fromkeys((*ranked, *self.front)))

    @property
    def reads_footprint(self) -> bool:
        """Whether steps alone do not tell it."""
        return any(metric.reads_footprint for metric in self.metrics)

    def worth_per_step(self, job: Job, footprint: Footprint | None = None) -> float:
        """What one step is worth: divided by a step time in seconds it is the value of a layout.

        Of columns of footprints it is a column.

        Args:
            job: Whose steps they are.
            footprint: What the layout takes beside time; None where nothing reads it.
        """
        if not self.profile:
            return _worth(self.metric, job, footprint)
        return _product((_worth(one, job, footprint), share) for one, share in self._shares())

    def counted(self, reached: Measurement | TrialEstimate) -> Figures:
        """Those figures of what a trial reached that it is compared by."""
        if self.under_faults and isinstance(reached, Measurement) and reached.robust is not None:
            return reached.robust
        return reached

    def value(self, reached: Measurement | TrialEstimate) -> float:
        """What a trial is worth that reached so much."""
        return self.value_of(self.counted(reached), reached.footprint)

    def healthy_value(self, reached: Measurement | TrialEstimate) -> float:
        """What its healthy steps are worth."""
        return self.value_of(reached, reached.footprint)

    def value_of(self, rates: Rates, footprint: Footprint | None) -> float:
        """What a layout is worth that is so fast, reached or predicted, and takes so much beside time."""
        if not self.profile:
            return self.metric.of(rates, footprint)
        return _product((one.of(rates, footprint), share) for one, share in self._shares())

    @property
    def is_speed(self) -> bool:
        """Whether the fastest is the best: MFU and token rate of a job rank its layouts alike."""
        return not self.profile and not self.metric.reads_footprint

    def _shares(self) -> list[tuple[Metric, float]]:
        """Each metric of the profile with its exponent."""
        of_rates = sum(one.weight for one in self.profile if one.metric.is_rate)
        return [(one.metric, one.weight / of_rates) for one in self.profile]

    def predicted_step_s(self, prediction: Prediction) -> float:
        """The predicted step time that counts."""
        robust_s = prediction.robust_step_s if self.under_faults else None
        return prediction.step_time.total_s if robust_s is None else robust_s

    def ranked(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that have a rank, the best first; equal ones by number."""
        return self._best_first(trial for trial in trials if trial.is_ranked)

    def leading(self, trials: Iterable[Trial]) -> list[Trial]:
        """The same with those that would have a rank if their loss gate passed."""
        return self._best_first(trial for trial in trials if trial.is_ranked or trial.awaits_gate)

    def _best_first(self, trials: Iterable[Trial]) -> list[Trial]:
        reached = [(trial, trial.reached) for trial in trials if trial.reached]
        return [trial for trial, found in sorted(reached, key=lambda pair: (-self.value(pair[1]), pair[0].number))]

    @property
    def noun(self) -> str:
        """What the value is called in a sentence."""
        noun = "profile value" if self.profile else self.metric.noun
        return f"robust {noun}" if self.under_faults else noun

    def figure(self, value: float) -> str:
        """The value where the noun stands beside it; that of a profile has no unit."""
        return f"{value:.4g}" if self.profile else self.metric.figure(value)

    def in_words(self, value: float) -> str:
        """The value as people read it: ``41.0 % MFU``, ``38.2 % robust MFU``, ``104 ktoken/s``."""
        if self.profile or self.metric is Metric.MFU:
            return f"{self.figure(value)} {self.noun}"
        return self.metric.in_words(value) + (" under faults" if self.under_faults else "")


def _product(powers: Iterable[tuple[float, float]]) -> float:
    """Each value to the power of its share, multiplied; columns of values make a column."""
    product: float = reduce(operator.mul, (value**share for value, share in powers))
    return product


def _worth(metric: Metric, job: Job, footprint: Footprint | None) -> float:
    """What a step is worth by a metric; what is no rate says so of every step."""
    tokens = float(job.workload.tokens_per_step)
    match metric:
        case Metric.MFU:
            model_flop = job.model.model_flop_per_step(job.workload)
            return model_flop / (job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size)
        case Metric.TOKENS_PER_S:
            return tokens
    assert footprint is not None
    return tokens * metric.per_token(footprint) if metric.is_rate else metric.share(footprint)
