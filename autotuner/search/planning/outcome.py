"""Outcome: what a training run on one cluster takes, by the prediction of its best layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.measurement import Footprint
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.planning.goal import Failures, Goal
from autotuner.search.ranking import PredictedLayout

_J_PER_KWH = 3.6e6
_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and its 80 % interval, whose ends lie as many times below and above it.

    Attributes:
        low: Fewer than 10 of 100 cases lie below.
        median: As many lie below as above.
        high: Fewer than 10 of 100 cases lie above.
    """

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, median: float, deviation: float) -> Interval:
        """Of a log-normal value; the deviation is that of its logarithm."""
        factor = math.exp(Z80 * deviation)
        return cls(low=median / factor, median=median, high=median * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A cluster with its best layout, and what the whole run takes on it.

    Attributes:
        cluster: With the prices that count.
        best: Its best layout by prediction.
        footprint: What that takes beside time.
        num_steps: Optimizer steps of the run.
        goodput: Share of the time in which it makes progress.
        deviation: Standard deviation of the logarithm of the run's time.
        is_hypothetical: Nobody sells such a cluster: one of the catalog was changed.
    """

    cluster: Cluster
    best: PredictedLayout
    footprint: Footprint
    num_steps: float
    goodput: float
    deviation: float
    is_hypothetical: bool = False

    @property
    def time_s(self) -> Interval:
        """Of the whole run, interruptions counted."""
        step_s = self.best.prediction.step_time.total_s
        return Interval.of(self.num_steps * step_s / self.goodput, self.deviation)

    @property
    def cost(self) -> Interval:
        """US dollars of the run."""
        return self._scaled(self.footprint.price_per_hour / _S_PER_HOUR)

    @property
    def accelerator_hours(self) -> Interval:
        """Of the run, interruptions counted."""
        return self._scaled(self.cluster.world_size / _S_PER_HOUR)

    @property
    def energy_kwh(self) -> Interval | None:
        """Of the run; None where nobody knows what the accelerator draws. How sure the power is, is not counted."""
        power = self.footprint.power
        return None if power is None else self._scaled(power.total_w / _J_PER_KWH)

    @property
    def co2_kg(self) -> Interval:
        """Of the energy; 0 where its mix is not known."""
        return self._scaled(self.footprint.co2_kg_per_hour / _S_PER_HOUR)

    @property
    def mfu(self) -> float:
        """Of steps that are not interrupted."""
        return self.best.prediction.mfu

    def _scaled(self, factor: float) -> Interval:
        time_s = self.time_s
        return Interval(low=factor * time_s.low, median=factor * time_s.median, high=factor * time_s.high)


def outcome_of(
    job: Job, best: PredictedLayout, goal: Goal, failures: Failures, *, is_hypothetical: bool = False
) -> Outcome:
    """What the run takes on the job's cluster by a layout."""
    num_ranks = job.cluster.world_size
    log_slowdown = failures.log_slowdown(num_ranks)
    of_failures = log_slowdown * math.log(failures.spread) / Z80  # to first order, as goodput is near 1
    of_steps = math.log1p(best.prediction.relative_error or 0.0) / Z80
    return Outcome(
        cluster=job.cluster,
        best=best,
        footprint=footprint_of(best.layout, job, best.prediction),
        num_steps=goal.num_tokens / job.workload.tokens_per_step,
        goodput=failures.goodput(num_ranks),
        deviation=math.hypot(of_steps, of_failures),
        is_hypothetical=is_hypothetical,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A whole training run on a cluster, as the cost model has it. Intervals hold 80 of 100 cases.

    Attributes:
        time_s: Interruptions counted.
        cost: US dollars.
        accelerator_hours: Interruptions counted.
        energy_kwh: Null where nobody knows what the accelerator draws.
        co2_kg: 0 where nobody says what the energy emits.
        num_steps: Optimizer steps.
        step_time_s: Of one of them.
        mfu: Of steps that are not interrupted.
        goodput: Share of the time in which the run makes progress.
    """

    time_s: Interval
    cost: Interval
    accelerator_hours: Interval
    energy_kwh: Interval | None
    co2_kg: Interval
    num_steps: float
    step_time_s: float
    mfu: float
    goodput: float

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """The run's figures."""
        return cls(
            time_s=outcome.time_s,
            cost=outcome.cost,
            accelerator_hours=outcome.accelerator_hours,
            energy_kwh=outcome.energy_kwh,
            co2_kg=outcome.co2_kg,
            num_steps=outcome.num_steps,
            step_time_s=outcome.best.prediction.step_time.total_s,
            mfu=outcome.mfu,
            goodput=outcome.goodput,
        )
