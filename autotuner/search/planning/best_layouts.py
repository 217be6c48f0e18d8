"""The best layout of each cluster that a plan compares: of a thin space for all, of the whole one for the leading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotuner.costmodel.predict import predict_one
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.defaults import default_space
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import Recompute, ShardLevel
from autotuner.domain.layouts.layout import OPTIONS
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.search.planning.outcome import Outcome, outcome_of
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import Offer
from autotuner.search.ranking import PredictedLayout, best_predicted

__all__ = ["best_outcome", "job_on", "moved_outcome", "outcomes"]

_THIN: Mapping[str, tuple[int, ...]] = {
    "tensor_parallel_degree": (1, 2, 4, 8),
    "recompute": (Recompute.NONE, Recompute.FULL),
    "shard_level": (ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
    "first_stage_less_layers": (0, 1),
    "last_stage_less_layers": (0, 1),
}
"""Values that the best layouts of large jobs have; with them a table is a quarter as long (``bench.plan_speed`` prints
how much slower its best is)."""


def job_on(request: PlanRequest, cluster: Cluster) -> Job:
    """The run's job on a cluster."""
    return Job(model=request.model, cluster=cluster, workload=request.workload, stack=request.stack)


def outcomes(request: PlanRequest, found: Sequence[Offer], *, is_thorough: bool) -> tuple[Outcome | None, ...]:
    """What the run takes on each cluster; None where no layout fits.

    Args:
        request: What is asked.
        found: The clusters.
        is_thorough: Look through every layout; else through a thin space, which is several times as fast.
    """
    return tuple(best_outcome(request, offer, is_thorough=is_thorough) for offer in found)


def best_outcome(request: PlanRequest, offer: Offer, *, is_thorough: bool = True) -> Outcome | None:
    """What the run takes on one cluster; None where no layout fits."""
    job = job_on(request, offer.cluster)
    for space in _spaces(job, request, is_thorough=is_thorough):
        table = best_predicted(job, space, limit=1)
        if table.rows:
            best = table.rows[0]
            return outcome_of(job, best, request.goal, request.failures, is_hypothetical=offer.is_hypothetical)
    return None


def moved_outcome(request: PlanRequest, outcome: Outcome, cluster: Cluster) -> Outcome:
    """What the run takes by the same layout on a cluster of as many nodes."""
    job = job_on(request, cluster)
    row = PredictedLayout(layout=outcome.best.layout, prediction=predict_one(outcome.best.layout, job))
    return outcome_of(job, row, request.goal, request.failures, is_hypothetical=True)


def _spaces(job: Job, request: PlanRequest, *, is_thorough: bool) -> Iterator[SearchSpace]:
    """What is looked through, one after the other, until something fits."""
    space = _whole_space(job, request)
    if not is_thorough:
        thin = {name: _shared(space.values(name), values) for name, values in _THIN.items() if name not in request.axes}
        yield space.with_axes(**thin)
    yield space


def _whole_space(job: Job, request: PlanRequest) -> SearchSpace:
    """The default space of a prediction, but for formats that change the mathematics, which somebody has to name."""
    space = default_space(job)
    changing = OPTIONS["precision"].changes_mathematics
    keeping = tuple(value for value in space.values("precision") or () if value not in changing)
    return space.with_axes(precision=keeping or None).with_axes(**_allowed(job, request))


def _allowed(job: Job, request: PlanRequest) -> Mapping[str, tuple[int, ...] | None]:
    """The values that were named, less formats that this accelerator does not multiply."""
    named = request.axes.get("precision")
    if not named:
        return request.axes
    able = tuple(value for value in named if value in job.cluster.accelerator.precisions)
    return {**request.axes, "precision": able or named}


def _shared(values: tuple[int, ...] | None, thin: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the thin space that the whole one has; where it has none of them, all."""
    if values is None:
        return thin
    return tuple(value for value in thin if value in values) or values
