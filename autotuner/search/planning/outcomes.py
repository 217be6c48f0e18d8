"""Outcomes: the best layout of each cluster that a plan compares, and time and cost of a training run with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

from autotuner.core.caveat import Caveat, CaveatKind
from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.measurement import ResourceCost
from autotuner.core.named import resolved
from autotuner.core.space import SearchSpace, default_space
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.planning.offers import Offer
from autotuner.search.planning.request import Failures, Goal, PlanRequest
from autotuner.search.predicted_ranking import PredictedLayout, best_predicted
from autotuner.search.space.legal import SpaceTooLarge

_J_PER_KWH = 3.6e6
_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A positive value with its 80 % interval. The ends are the median divided by a factor, and multiplied by it."""

    low: float
    """Lower end of the 80 % interval: 10 of 100 cases are below."""
    median: float
    """Median of the value."""
    high: float
    """Upper end of the 80 % interval: 10 of 100 cases are above."""

    @classmethod
    def of(cls, median: float, deviation: float) -> Interval:
        """Return the 80 % interval of a value that is log-normally distributed.

        Args:
            median: Median of the value.
            deviation: Standard deviation of its natural logarithm.
        """
        factor = math.exp(Z80 * deviation)
        return cls(low=median / factor, median=median, high=median * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A cluster with its best layout, and the predicted time and resources of the whole training run on it."""

    cluster: Cluster
    """Cluster with the prices that apply."""
    best: PredictedLayout
    """Best layout of the cluster by prediction."""
    resource_cost: ResourceCost
    """Resource cost of that layout."""
    num_steps: float
    """Number of optimizer steps of the run."""
    goodput: float
    """Share of the run's time in which the training makes progress."""
    deviation: float
    """Standard deviation of the logarithm of the run's time."""
    is_hypothetical: bool = False
    """True if the cluster is a changed one of the catalog, which no provider sells."""

    @property
    def time_s(self) -> Interval:
        """Seconds of the whole training run with their 80 % interval, including the time lost by interruptions."""
        return Interval.of(self.num_steps * self.step_time_s / self.goodput, self.deviation)

    @property
    def cost(self) -> Interval:
        """Cost of the whole training run in US dollars with its 80 % interval, including interruptions."""
        return self._scaled(self.resource_cost.price_per_hour / _S_PER_HOUR)

    @property
    def accelerator_hours(self) -> Interval:
        """Accelerator-hours of the whole training run with their 80 % interval, including interruptions."""
        return self._scaled(self.cluster.world_size / _S_PER_HOUR)

    @property
    def energy_kwh(self) -> Interval | None:
        """Energy of the whole run in kWh, or None if the power of the accelerator is unknown.

        The interval includes the uncertainty of the run time, but not the uncertainty of the power.
        """
        power = self.resource_cost.power
        return None if power is None else self._scaled(power.total_w / _J_PER_KWH)

    @property
    def co2_kg(self) -> Interval:
        """Emissions of the run's energy in kg of CO2; 0 if the energy mix is unknown."""
        return self._scaled(self.resource_cost.co2_kg_per_hour / _S_PER_HOUR)

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of one optimizer step of the best layout, without interruptions."""
        return self.best.prediction.step_time.total_s

    @property
    def mfu(self) -> float:
        """Predicted MFU of the best layout in steps that are not interrupted, 0..1."""
        return self.best.prediction.mfu

    def _scaled(self, factor: float) -> Interval:
        time_s = self.time_s
        return Interval(low=factor * time_s.low, median=factor * time_s.median, high=factor * time_s.high)


def outcome_of(
    job: Job, best: PredictedLayout, goal: Goal, failures: Failures, *, is_hypothetical: bool = False
) -> Outcome:
    """Return the predicted time and resources of the whole training run with a layout on the job's cluster.

    Args:
        job: The job on the cluster.
        best: The layout with its prediction.
        goal: Number of tokens to train on, and limits of time and price.
        failures: Rates of interruptions, and the time that each interruption takes.
        is_hypothetical: True if nobody sells the cluster.
    """
    num_ranks = job.cluster.world_size
    log_slowdown = failures.log_slowdown(num_ranks)
    of_failures = log_slowdown * math.log(failures.spread) / Z80  # to first order, as goodput is near 1
    of_steps = math.log1p(best.prediction.relative_error) / Z80
    return Outcome(
        cluster=job.cluster,
        best=best,
        resource_cost=best.resource_cost or resource_cost_of(best.layout, job, best.prediction),
        num_steps=goal.num_tokens / job.workload.tokens_per_step,
        goodput=failures.goodput(num_ranks),
        deviation=math.hypot(of_steps, of_failures),
        is_hypothetical=is_hypothetical,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A whole training run on a cluster, as the cost model predicts it. Intervals are 80 % intervals."""

    time_s: Interval
    """Time of the run, including interruptions."""
    cost: Interval
    """Cost of the run in US dollars."""
    accelerator_hours: Interval
    """Accelerator-hours of the run, including interruptions."""
    energy_kwh: Interval | None
    """Energy of the run; null if the accelerator's power is not known."""
    co2_kg: Interval
    """Emissions of the run; 0 if the emissions of the energy are not known."""
    num_steps: float
    """Number of optimizer steps of the run."""
    step_time_s: float
    """Duration of one step."""
    mfu: float
    """MFU of steps without interruptions."""
    goodput: float
    """Share of the time in which the run makes progress."""

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """Return the figures of a predicted run, copied from the fields of ``outcome`` with the same names."""
        return cls(**{field.name: getattr(outcome, field.name) for field in fields(cls)})


_THIN: Mapping[str, tuple[int, ...]] = {
    "tensor_parallel_degree": (1, 2, 4, 8),
    "recompute": (Recompute.NONE, Recompute.FULL),
    "shard_level": (ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
    "first_stage_less_layers": (0, 1),
    "last_stage_less_layers": (0, 1),
}
"""Values that the best layouts of large jobs usually have. With these values a table is a quarter as long. Its best
layout is 0 % slower in the median, 4 % at most (docs/explanation/plans.md)."""


def job_on(request: PlanRequest, cluster: Cluster) -> Job:
    """Return the job of the planned training run, if it ran on this cluster."""
    return Job(model=resolved(request.model), cluster=cluster, workload=request.workload, stack=resolved(request.stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCluster:
    """The best layout found on a cluster, and whether the search went through all legal layouts or a reduced space."""

    outcome: Outcome | None
    """Outcome of the best layout; None if no layout that was searched fits."""
    is_thorough: bool
    """True if all layouts were searched; otherwise only a reduced space of them."""
    too_large: Caveat | None = None
    """Caveat which says that the whole cluster, or all layouts outside a reduced space, were left out because there
    were too many layouts; None if all were searched."""


def searched_clusters(
    request: PlanRequest, found: Sequence[Offer], *, is_thorough: bool
) -> tuple[SearchedCluster, ...]:
    """Return the best layout on each of these clusters by prediction.

    Args:
        request: The plan request.
        found: The clusters.
        is_thorough: See ``searched_cluster``.
    """
    return tuple(searched_cluster(request, offer, is_thorough=is_thorough) for offer in found)


def searched_cluster(request: PlanRequest, offer: Offer, *, is_thorough: bool = True) -> SearchedCluster:
    """Return the best layout on one cluster by prediction.

    Args:
        request: The plan request.
        offer: The cluster.
        is_thorough: If True, search every layout, or a reduced space if there are too many layouts. If False, search
            the reduced space first, which is several times as fast. Then search every layout only if no layout of the
            reduced space fits in memory.
    """
    job = job_on(request, offer.cluster)
    whole = _whole_space(job, request)
    thin = _thin_space(whole, request)
    rule = ""
    for space in (whole, thin) if is_thorough else (thin, whole):
        try:
            table = best_predicted(job, space, limit=1)
        except SpaceTooLarge as error:
            rule = error.rule
            continue
        if table.rows:
            best = table.rows[0]
            outcome = outcome_of(job, best, request.goal, request.failures, is_hypothetical=offer.is_hypothetical)
            missed = _missed(CaveatKind.THIN_SPACE, offer, rule)
            return SearchedCluster(outcome=outcome, is_thorough=space is whole, too_large=missed)
        if space is whole:
            break  # the whole space contains the thin one
    missed = _missed(CaveatKind.LEFT_OUT, offer, rule)
    return SearchedCluster(outcome=None, is_thorough=False, too_large=missed)


def _missed(kind: CaveatKind, offer: Offer, rule: str) -> Caveat | None:
    """Return a caveat about what was left out if a space broke a rule."""
    return Caveat(kind=kind, cluster=offer.cluster.name, subjects=(rule,)) if rule else None


def moved_outcome(request: PlanRequest, outcome: Outcome, cluster: Cluster) -> Outcome:
    """Return the predicted run of the same layout on another, hypothetical cluster with the same number of nodes.

    A plan compares it with the best layout that a new search finds on that cluster.
    """
    job = job_on(request, cluster)
    row = PredictedLayout(layout=outcome.best.layout, prediction=predict_one(outcome.best.layout, job))
    return outcome_of(job, row, request.goal, request.failures, is_hypothetical=True)


def _thin_space(whole: SearchSpace, request: PlanRequest) -> SearchSpace:
    """Return the space with fewer values for the axes that make it large and that the request does not name."""
    thin = {name: _shared(whole.values(name), values) for name, values in _THIN.items() if name not in request.space}
    return whole.with_axes(**thin)


def _whole_space(job: Job, request: PlanRequest) -> SearchSpace:
    """Return the default space of a prediction, with the values that were named.

    Formats that are not numerically equivalent must be named. Named formats that this accelerator does not have are
    left out.
    """
    space, axes = default_space(job), dict(request.space)
    changing = OPTIONS["precision"].not_equivalent
    keeping = tuple(value for value in space.values("precision") or () if value not in changing)
    if named := axes.get("precision"):
        axes["precision"] = tuple(value for value in named if value in job.cluster.accelerator.precisions) or named
    return space.with_axes(precision=keeping or None).with_axes(**axes)


def _shared(values: tuple[int, ...] | None, thin: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values of the thin space that the whole space also has; if there are none, all of the whole space."""
    if values is None:
        return thin
    return tuple(value for value in thin if value in values) or values
