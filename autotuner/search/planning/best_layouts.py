"""The best layout of each cluster that a plan compares: of a thin space for all, of the whole one for the leading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotuner.core.choices import Recompute, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS
from autotuner.core.named import resolved
from autotuner.core.space import SearchSpace, default_space
from autotuner.costmodel.predict import predict_one
from autotuner.search.planning.outcome import Outcome, outcome_of
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import Offer
from autotuner.search.ranking import PredictedLayout, best_predicted
from autotuner.search.splits import SpaceTooLarge

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
    return Job(model=resolved(request.model), cluster=cluster, workload=request.workload, stack=resolved(request.stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCluster:
    """The best layout of a cluster, and which of its layouts were looked through.

    Attributes:
        outcome: None where no layout that was looked through fits.
        is_thorough: All layouts were looked through; else a thin space of them.
        too_large: Why the cluster, or all but a thin space of its layouts, was left out against the wish of whoever
            asked: a sentence without a full stop; empty where nothing was.
    """

    outcome: Outcome | None
    is_thorough: bool
    too_large: str = ""


def searched_clusters(
    request: PlanRequest, found: Sequence[Offer], *, is_thorough: bool
) -> tuple[SearchedCluster, ...]:
    """Search each of the clusters; see ``searched_cluster``."""
    return tuple(searched_cluster(request, offer, is_thorough=is_thorough) for offer in found)


def searched_cluster(request: PlanRequest, offer: Offer, *, is_thorough: bool = True) -> SearchedCluster:
    """Search the layouts of one cluster for the best.

    Args:
        request: What is asked.
        offer: The cluster.
        is_thorough: Look through every layout, or through a thin space where these are too many; else through the thin
            space, which is several times as fast, and through every layout where none of it fits.
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
            missed = f"on {offer.cluster.name} a thin space of layouts was looked through: {rule}" if rule else ""
            return SearchedCluster(outcome=outcome, is_thorough=space is whole, too_large=missed)
        if space is whole:
            break  # it holds the thin one
    too_large = f"{offer.cluster.name} was left out: {rule}" if rule else ""
    return SearchedCluster(outcome=None, is_thorough=False, too_large=too_large)


def best_outcome(request: PlanRequest, offer: Offer, *, is_thorough: bool = True) -> Outcome | None:
    """What the run takes on one cluster; None where no layout fits."""
    return searched_cluster(request, offer, is_thorough=is_thorough).outcome


def moved_outcome(request: PlanRequest, outcome: Outcome, cluster: Cluster) -> Outcome:
    """What the run takes by the same layout on a cluster of as many nodes."""
    job = job_on(request, cluster)
    row = PredictedLayout(layout=outcome.best.layout, prediction=predict_one(outcome.best.layout, job))
    return outcome_of(job, row, request.goal, request.failures, is_hypothetical=True)


def _thin_space(whole: SearchSpace, request: PlanRequest) -> SearchSpace:
    """Return the space with few values of the axes that make it long and that nobody named."""
    thin = {name: _shared(whole.values(name), values) for name, values in _THIN.items() if name not in request.space}
    return whole.with_axes(**thin)


def _whole_space(job: Job, request: PlanRequest) -> SearchSpace:
    """The default space of a prediction, but for formats that change the mathematics, which somebody has to name."""
    space = default_space(job)
    changing = OPTIONS["precision"].not_equivalent
    keeping = tuple(value for value in space.values("precision") or () if value not in changing)
    return space.with_axes(precision=keeping or None).with_axes(**_allowed(job, request))


def _allowed(job: Job, request: PlanRequest) -> Mapping[str, tuple[int, ...] | None]:
    """The values that were named, less formats that this accelerator does not multiply."""
    named = request.space.get("precision")
    if not named:
        return request.space
    able = tuple(value for value in named if value in job.cluster.accelerator.precisions)
    return {**request.space, "precision": able or named}


def _shared(values: tuple[int, ...] | None, thin: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the thin space that the whole one has; where it has none of them, all."""
    if values is None:
        return thin
    return tuple(value for value in thin if value in values) or values
