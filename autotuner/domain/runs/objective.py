"""Objective: what a sweep maximises, of healthy steps or under its faults. Everything that compares trials asks it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from autotuner.domain.jobs.job import Job
from autotuner.domain.runs.estimate import TrialEstimate
from autotuner.domain.runs.prediction import Prediction
from autotuner.domain.runs.robust import RobustMeasurement
from autotuner.domain.runs.trial import Measurement, Trial
from autotuner.units import format_rate

__all__ = ["WORTHWHILE_GAIN", "Figures", "Metric", "Objective"]

WORTHWHILE_GAIN = 0.01
"""A trial beats the best when it is better by 1 %: less than that is noise on most machines."""

Figures = Measurement | TrialEstimate | RobustMeasurement
"""Step time, MFU and token rate, with how well they are known."""


class Metric(StrEnum):
    """A rate that more of is better: something per step, over the step time.

    Within a sweep both rank alike, since MFU has one reference peak per sweep; they differ in what people read.
    """

    MFU = "mfu"
    TOKENS_PER_S = "tokens_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a sweep maximises: how values come from step times, which trials count, and what people read.

    Attributes:
        under_faults: What counts is what a layout reaches under the fault trace of its sweep; so it is wherever there
            is one. Healthy steps stand beside.
    """

    metric: Metric = Metric.MFU
    under_faults: bool = False

    def per_step(self, job: Job) -> float:
        """What one step is worth: divided by a step time in seconds it is the value of a layout."""
        match self.metric:
            case Metric.MFU:
                model_flop = job.model.model_flop_per_step(job.workload)
                return model_flop / (job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size)
            case Metric.TOKENS_PER_S:
                return float(job.workload.tokens_per_step)

    def counted(self, reached: Measurement | TrialEstimate) -> Figures:
        """Those figures of what a trial reached that it is compared by."""
        if self.under_faults and isinstance(reached, Measurement) and reached.robust is not None:
            return reached.robust
        return reached

    def value(self, reached: Measurement | TrialEstimate) -> float:
        """What a trial is worth that reached so much."""
        return self.healthy_value(self.counted(reached))

    def healthy_value(self, reached: Figures) -> float:
        """The same of the figures as they stand: of a measurement, what its healthy steps are worth."""
        match self.metric:
            case Metric.MFU:
                return reached.mfu
            case Metric.TOKENS_PER_S:
                return reached.tokens_per_s

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
        noun = {Metric.MFU: "MFU", Metric.TOKENS_PER_S: "token rate"}[self.metric]
        return f"robust {noun}" if self.under_faults else noun

    def in_words(self, value: float) -> str:
        """The value as people read it: ``41.0 % MFU``, ``38.2 % robust MFU``, ``104 ktoken/s``."""
        match self.metric:
            case Metric.MFU:
                return f"{100 * value:.1f} % {self.noun}"
            case Metric.TOKENS_PER_S:
                return format_rate(value, "token/s") + (" under faults" if self.under_faults else "")
