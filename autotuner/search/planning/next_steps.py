"""Next steps: pilot sweeps to run before the choice of a cluster, and the gain of changes to the chosen cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotuner.core.caveat import Caveat
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Prediction
from autotuner.core.stages import layers_per_stage
from autotuner.core.trial import ProxyTrial, part_of
from autotuner.core.units import GIGA
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.planning.decision import Decision, PilotResult, errors_of
from autotuner.search.planning.offers import Offer, changed
from autotuner.search.planning.outcomes import (
    Outcome,
    SearchedCluster,
    TrainingRun,
    job_on,
    moved_outcome,
    searched_cluster,
)
from autotuner.search.planning.request import PlanRequest
from autotuner.search.sampler.proxy import OF_A_RANK, fewer_layers, proxy_trial

_MOST_STAGES = 3

_MOST_CANDIDATES = 24
"""Largest number of clusters that the choice is between: those with the least expected loss."""

_MOST_ACCELERATORS = 6
"""Largest number of kinds of accelerators for which pilot sweeps are proposed: those of the best candidates."""

_MOST_NODES = 64
"""Maximum number of nodes of a pilot sweep."""

NUM_TRIALS = 8
"""Number of trials of a pilot sweep: the best layout and some similar ones."""

_START_S = 240.0
"""Time of a trial before its first measured step, including data and compilation: an assumption."""

_NUM_STEPS = 30
"""Number of steps of a trial, including the steps before times are stationary, as the trial job measures
(docs/explanation/measurement.md)."""

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSweep:
    """A small sweep that a user should run before choosing a cluster, with its cost and the money that it saves.

    Its figures assume that the pilot sweeps that come before it in the list were run.
    """

    accelerator: str
    """Accelerator that the sweep runs on."""
    num_nodes: int
    """Number of nodes that the sweep uses."""
    num_accelerators: int
    """Number of accelerators that a trial uses."""
    target: str
    """Name of the cluster whose layouts the trials are proxies for."""
    label: str
    """Short text for the layout of the first trial, which is a proxy for the target's best layout."""
    layout: Layout
    num_layers: int
    """Number of layers of the model that the trials run."""
    global_batch_size: int
    """Number of sequences per step in the trials."""
    parts: tuple[str, ...]
    """Parts of a step that the trials measure exactly as the target runs them."""
    num_trials: int
    """Number of trials of the sweep."""
    hours: float
    """Hours that the sweep takes."""
    cost: float
    """Cost of the sweep in US dollars."""
    saved: float
    """Mean dollars by which the sweep improves the choice of a cluster, in addition to the sweeps before it."""
    error_after: float
    """Half-width e of the 80 % interval of the target's time after the sweep: t / (1 + e) .. t (1 + e)."""

    @property
    def worth(self) -> float:
        """Net value of the sweep in dollars: the mean saving by a better choice of cluster, less the sweep's cost."""
        return self.saved - self.cost


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sweep:
    """A pilot sweep that may be run."""

    row: int
    """Row of the candidate whose best layout it is a proxy for."""
    result: PilotResult
    pilot: PilotSweep
    """Description of the sweep, in which ``saved`` is not known yet."""


def pilot_sweeps(request: PlanRequest, candidates: Sequence[Outcome]) -> tuple[PilotSweep, ...]:
    """Return small sweeps that save more than they cost, in the order in which a user should run them.

    A sweep saves money if its results change the choice of the cluster. The value of each sweep assumes that the
    earlier sweeps in the list were run.

    Args:
        request: The plan request.
        candidates: Predicted runs on the clusters to choose from; the run with the least expected loss comes first.
    """
    found = candidates[:_MOST_CANDIDATES]
    decision = Decision.among(request, found)
    sweeps = list(_sweeps(request, found))
    stages: list[PilotSweep] = []
    belief, saved = decision.belief, 0.0
    while len(stages) < _MOST_STAGES and sweeps:
        values = [decision.regret_saved(belief.after(one.result)) - saved for one in sweeps]
        best = max(range(len(sweeps)), key=lambda index: values[index] - sweeps[index].pilot.cost)
        if values[best] <= sweeps[best].pilot.cost:
            break
        chosen = sweeps.pop(best)
        belief, saved = belief.after(chosen.result), saved + values[best]
        error_after = math.expm1(Z80 * float(belief.deviations[chosen.row]))
        stages.append(replace(chosen.pilot, saved=values[best], error_after=error_after))
    return tuple(stages)


def _sweeps(request: PlanRequest, found: Sequence[Outcome]) -> Iterator[_Sweep]:
    """Yield pilot sweeps for the best candidate of each kind of accelerator, on one node and on more."""
    kinds: dict[str, int] = {}
    for row, outcome in enumerate(found):
        kinds.setdefault(outcome.cluster.accelerator.name, row)
    for row in list(kinds.values())[:_MOST_ACCELERATORS]:
        target, taken = found[row], set[int]()
        nodes = 1
        while 2 * nodes <= max(1, target.cluster.num_nodes) and nodes <= _MOST_NODES:
            sweep = _sweep(request, target, row, nodes)
            if sweep is not None and sweep.pilot.num_accelerators not in taken:
                taken.add(sweep.pilot.num_accelerators)
                yield sweep
            nodes *= 2


def _sweep(request: PlanRequest, target: Outcome, row: int, num_nodes: int) -> _Sweep | None:
    """Return a pilot sweep on ``num_nodes`` nodes whose trials are proxies for the target's best layout.

    Return None if there is no such proxy, or if none fits in memory.
    """
    cluster = part_of(target.cluster, num_nodes * target.cluster.accelerators_per_node)
    found = _fitting(job_on(request, target.cluster), target, cluster)
    if found is None:
        return None
    trial, small, prediction = found
    parts = trial.measured_parts or OF_A_RANK
    result = PilotResult.by_parts(
        cluster.accelerator.name, errors_of(trial.layout, small, prediction), parts, NUM_TRIALS
    )
    seconds = NUM_TRIALS * (_START_S + _NUM_STEPS * prediction.step_time.total_s)
    price_per_hour = target.resource_cost.price_per_hour * cluster.world_size / target.cluster.world_size
    if result is None:
        return None
    pilot = PilotSweep(
        accelerator=target.cluster.accelerator.name,
        num_nodes=num_nodes,
        num_accelerators=trial.num_ranks,
        target=target.cluster.name,
        label=str(trial.layout),
        layout=trial.layout,
        num_layers=trial.num_layers,
        global_batch_size=trial.global_batch_size,
        parts=parts,
        num_trials=NUM_TRIALS,
        hours=seconds / _S_PER_HOUR,
        cost=price_per_hour * seconds / _S_PER_HOUR,
        saved=0.0,
        error_after=0.0,
    )
    return _Sweep(row=row, result=result, pilot=pilot)


def _fitting(job: Job, target: Outcome, cluster: Cluster) -> tuple[ProxyTrial, Job, Prediction] | None:
    """Return the proxy trial with most layers that fits in memory on a smaller cluster, its job and its prediction."""
    layout, depth = target.best.layout, None
    while True:
        trial = proxy_trial(job, layout, cluster, most_layers_per_stage=depth)
        if not isinstance(trial, ProxyTrial):
            return None
        small = trial.job(job, cluster)
        prediction = predict_one(trial.layout, small)
        if prediction.fits:
            return trial, small, prediction
        depth = fewer_layers(job, layout, depth or int(layers_per_stage(layout, job.model.num_layers)))
        if depth is None:
            return None


_MORE_MEMORY_BYTES = 40 * GIGA

_NODE_FACTORS = (9 / 8, 5 / 4, 3 / 2, 2)
"""Factors by which the number of nodes is increased if one more node is not useful: the sizes divide batches and
layers."""


class UpgradeKind(StrEnum):
    """The kind of a change to the chosen cluster that would speed up the training run, such as more memory."""

    MORE_NODES = "more_nodes"
    TWICE_THE_NETWORK = "twice_the_network"
    MORE_MEMORY = "more_memory"  # 40 GB more for each accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A change of the chosen cluster, such as more memory, with the time and money that it would save."""

    change: UpgradeKind
    num_nodes: int = 0
    """Number of nodes that the change adds. The gains are of all of them together."""
    saved_s: float = 0.0
    """Time by which the run becomes shorter."""
    saved_cost: float = 0.0
    """US dollars by which the run becomes cheaper; below 0 if it costs more."""
    mfu: float = 0.0
    """Increase of the MFU, 0..1."""
    price_per_hour: float = 0.0
    """Increase of the price of an hour of the cluster, in US dollars."""
    mfu_per_dollar: float | None = None
    """``mfu`` divided by ``price_per_hour``; null if ``price_per_hour`` is not above 0."""
    hours_per_dollar: float | None = None
    """Hours saved for each additional dollar of the run; null if the run does not cost more."""
    worth_per_accelerator_hour: float | None = None
    """Dollars by which the price of an accelerator-hour may rise before the run costs more than without the change;
    null for additional nodes."""
    predicted: TrainingRun | None = None
    """Run with the change; null if no layout benefits from the change."""

    @classmethod
    def between(cls, change: UpgradeKind, before: Outcome, after: Outcome) -> Upgrade:
        """Return the time and money that a change of the cluster saves, from the runs before and after the change.

        Args:
            change: Kind of the change.
            before: Predicted run on the chosen cluster.
            after: Predicted run on the changed cluster.
        """
        num_nodes = after.cluster.num_nodes - before.cluster.num_nodes
        saved_s = before.time_s.median - after.time_s.median
        saved_cost = before.cost.median - after.cost.median
        mfu, price = after.mfu - before.mfu, after.resource_cost.price_per_hour - before.resource_cost.price_per_hour
        hours = after.accelerator_hours.median
        return cls(
            change=change,
            num_nodes=num_nodes,
            saved_s=saved_s,
            saved_cost=saved_cost,
            mfu=mfu,
            price_per_hour=price,
            mfu_per_dollar=mfu / price if price > 0 else None,
            hours_per_dollar=saved_s / _S_PER_HOUR / -saved_cost if saved_cost < 0 else None,
            worth_per_accelerator_hour=None
            if num_nodes
            else max(0.0, saved_cost / hours + price / after.cluster.world_size),
            predicted=TrainingRun.of(after),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrades:
    """The gains of changes to the chosen cluster. Caveats name changes that have too many layouts to search."""

    found: tuple[Upgrade, ...]
    too_large: tuple[Caveat, ...] = ()
    """Caveats about changes that were left out because they have too many layouts."""


def upgrades(request: PlanRequest, offer: Offer, chosen: Outcome) -> Upgrades:
    """Return what each change of the chosen cluster would save: more nodes, twice the network bandwidth, more memory.

    Args:
        request: The plan request.
        offer: The chosen cluster as it was offered.
        chosen: Predicted run on that cluster.
    """
    cluster = chosen.cluster
    faster = changed(cluster, request.change_prices, network_factor=2.0)
    larger = changed(cluster, request.change_prices, extra_bytes=_MORE_MEMORY_BYTES)
    found = [_more_nodes(request, offer, chosen)]
    if cluster.num_nodes > 1:
        found.append(_changed(request, faster, UpgradeKind.TWICE_THE_NETWORK, chosen))
    found.append(_changed(request, larger, UpgradeKind.MORE_MEMORY, chosen))
    return Upgrades(
        found=tuple(one for each in found for one in each.found),
        too_large=tuple(one for each in found for one in each.too_large),
    )


def _changed(request: PlanRequest, cluster: Cluster, change: UpgradeKind, before: Outcome) -> Upgrades:
    """Return the gain of a change to the cluster.

    It is the better one of two: the best layout after the change, and the present layout moved there.
    """
    moved = moved_outcome(request, before, cluster)
    found = searched_cluster(request, Offer(cluster=cluster, is_hypothetical=True))
    after = moved if found.outcome is None else min(moved, found.outcome, key=lambda one: one.time_s.median)
    return Upgrades(found=(Upgrade.between(change, before, after),), too_large=_reasons([found]))


def _more_nodes(request: PlanRequest, offer: Offer, chosen: Outcome) -> Upgrades:
    """Return the smallest number of additional nodes with which the run is faster.

    There is none if twice the nodes do not help.
    """
    searched = []
    for cluster in _larger(offer.cluster):
        searched.append(searched_cluster(request, replace(offer, cluster=cluster)))
        after = searched[-1].outcome
        if after is not None and after.time_s.median < chosen.time_s.median:
            gain = Upgrade.between(UpgradeKind.MORE_NODES, chosen, after)
            return Upgrades(found=(gain,), too_large=_reasons(searched))
    return Upgrades(found=(Upgrade(change=UpgradeKind.MORE_NODES),), too_large=_reasons(searched))


def _reasons(searched: Sequence[SearchedCluster]) -> tuple[Caveat, ...]:
    return tuple(one.too_large for one in searched if one.too_large)


def _larger(cluster: Cluster) -> Iterator[Cluster]:
    nodes = cluster.num_nodes
    for num_nodes in dict.fromkeys((nodes + 1, *(math.ceil(factor * nodes) for factor in _NODE_FACTORS))):
        try:
            name = f"{cluster.accelerator.name}:{num_nodes}x{cluster.accelerators_per_node}"
            yield replace(cluster.resized(num_nodes=num_nodes), name=name)
        except InvalidInput:  # the cluster's torus cannot have this size
            continue
