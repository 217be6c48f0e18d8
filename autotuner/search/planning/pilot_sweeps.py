"""Pilots: a small sweep on few accelerators that makes the choice of a large cluster surer, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import layers_per_stage
from autotuner.core.trial import ScaledTrial, part_of
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.planning.belief import Belief, Told, errors_of
from autotuner.search.planning.best_layouts import job_on
from autotuner.search.planning.decision import Decision
from autotuner.search.planning.loss import Loss
from autotuner.search.planning.outcome import Outcome
from autotuner.search.planning.request import PlanRequest
from autotuner.search.scaling.measured_parts import OF_A_RANK
from autotuner.search.scaling.smaller import fewer_layers, scaled

_MOST_STAGES = 3

_MOST_CONTENDERS = 24
"""Clusters that the choice is taken to be among: those with the least expected loss."""

_MOST_ACCELERATORS = 6
"""Kinds that are proved, those of the best contenders."""

_MOST_NODES = 64
"""Of a proof of concept: more is no small sweep."""

NUM_TRIALS = 8
"""Of a small sweep: the best layout and some around it."""

_START_S = 240.0
"""What a trial takes before its first step that counts, data and compilation included: an assumption."""

_NUM_STEPS = 30
"""Of a trial, those before the times settle included; as the trial job measures (docs/measurement.md)."""

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSweep:
    """A small sweep that makes the choice surer, given those before it.

    Attributes:
        accelerator: What it runs on.
        num_nodes: Nodes that it takes.
        num_accelerators: Accelerators that a trial takes.
        target: The cluster that its trials stand for.
        label: The layout of its first trial in short; that stands for the target's best layout.
        num_layers: Layers of the model that it runs.
        global_batch_size: Sequences of its step.
        parts: Parts of a step that it measures as the target runs them.
        num_trials: Of the sweep.
        hours: That it takes.
        cost: US dollars of it.
        saved: Dollars by which the choice gets better on average; those of the sweeps before are not counted.
        error_after: Half-width e of the 80 % interval of the target's time that is left: t / (1 + e) .. t (1 + e).
    """

    accelerator: str
    num_nodes: int
    num_accelerators: int
    target: str
    label: str
    layout: Layout
    num_layers: int
    global_batch_size: int
    parts: tuple[str, ...]
    num_trials: int
    hours: float
    cost: float
    saved: float
    error_after: float

    @property
    def worth(self) -> float:
        """Dollars that it saves beyond what it costs."""
        return self.saved - self.cost


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sweep:
    """A small sweep that may be run.

    Attributes:
        row: The contender that it stands for.
        seconds: That it takes.
    """

    row: int
    num_nodes: int
    trial: ScaledTrial
    parts: tuple[str, ...]
    told: Told
    seconds: float
    cost: float


def pilot_sweeps(request: PlanRequest, contenders: Sequence[Outcome]) -> tuple[PilotSweep, ...]:
    """Small sweeps that are worth more than they cost, one after the other; each given that the earlier were run.

    Args:
        request: What is asked.
        contenders: The clusters, the least expected loss first.
    """
    found = contenders[:_MOST_CONTENDERS]
    errors = [errors_of(one.best.layout, job_on(request, one.cluster), one.best.prediction) for one in found]
    decision = Decision(belief=Belief.of(found, errors), loss=Loss.of(found, request.goal))
    sweeps = list(_sweeps(request, found))
    stages: list[PilotSweep] = []
    belief, saved = decision.belief, 0.0
    while len(stages) < _MOST_STAGES and sweeps:
        values = [decision.regret_saved(belief.after(one.told)) - saved for one in sweeps]
        best = max(range(len(sweeps)), key=lambda index: values[index] - sweeps[index].cost)
        if values[best] <= sweeps[best].cost:
            break
        chosen = sweeps.pop(best)
        belief, saved = belief.after(chosen.told), saved + values[best]
        stages.append(_pilot_sweep(chosen, found[chosen.row], values[best], float(belief.deviations[chosen.row])))
    return tuple(stages)


def _pilot_sweep(sweep: _Sweep, target: Outcome, saved: float, deviation: float) -> PilotSweep:
    return PilotSweep(
        accelerator=target.cluster.accelerator.name,
        num_nodes=sweep.num_nodes,
        num_accelerators=sweep.trial.num_ranks,
        target=target.cluster.name,
        label=str(sweep.trial.layout),
        layout=sweep.trial.layout,
        num_layers=sweep.trial.num_layers,
        global_batch_size=sweep.trial.global_batch_size,
        parts=sweep.parts,
        num_trials=NUM_TRIALS,
        hours=sweep.seconds / _S_PER_HOUR,
        cost=sweep.cost,
        saved=saved,
        error_after=math.expm1(Z80 * deviation),
    )


def _sweeps(request: PlanRequest, found: Sequence[Outcome]) -> Iterator[_Sweep]:
    """Small sweeps for the best contender of each kind of accelerator, on one node and on more."""
    kinds: dict[str, int] = {}
    for row, outcome in enumerate(found):
        kinds.setdefault(outcome.cluster.accelerator.name, row)
    for row in list(kinds.values())[:_MOST_ACCELERATORS]:
        target, taken = found[row], set[int]()
        nodes = 1
        while 2 * nodes <= max(1, target.cluster.num_nodes) and nodes <= _MOST_NODES:
            sweep = _sweep(request, target, row, nodes)
            if sweep is not None and sweep.trial.num_ranks not in taken:
                taken.add(sweep.trial.num_ranks)
                yield sweep
            nodes *= 2


def _sweep(request: PlanRequest, target: Outcome, row: int, num_nodes: int) -> _Sweep | None:
    """Trials on so many nodes that stand for the target's best layout; None where none does or none fits."""
    cluster = part_of(target.cluster, num_nodes * target.cluster.accelerators_per_node)
    found = _fitting(job_on(request, target.cluster), target, cluster)
    if found is None:
        return None
    trial, small = found
    prediction = predict_one(trial.layout, small)
    parts = trial.measured_parts or OF_A_RANK
    told = Told.by_parts(cluster.accelerator.name, errors_of(trial.layout, small, prediction), parts, NUM_TRIALS)
    seconds = NUM_TRIALS * (_START_S + _NUM_STEPS * prediction.step_time.total_s)
    price_per_hour = target.footprint.price_per_hour * cluster.world_size / target.cluster.world_size
    cost = price_per_hour * seconds / _S_PER_HOUR
    if told is None:
        return None
    return _Sweep(row=row, num_nodes=num_nodes, trial=trial, parts=parts, told=told, seconds=seconds, cost=cost)


def _fitting(job: Job, target: Outcome, cluster: Cluster) -> tuple[ScaledTrial, Job] | None:
    """The trial with most layers that fits on a smaller cluster, and its job."""
    layout, depth = target.best.layout, None
    while True:
        trial = scaled(job, layout, cluster, most_layers_per_stage=depth)
        if not isinstance(trial, ScaledTrial):
            return None
        small = trial.job(job, cluster)
        if predict_one(trial.layout, small).fits:
            return trial, small
        depth = fewer_layers(job, layout, depth or int(layers_per_stage(layout, job.model.num_layers)))
        if depth is None:
            return None
