"""Pipelines of unequal stages, by the closed forms of ``costmodel.step.bubble`` and by the event simulator."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.stages import V_SCHEDULES
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.step.bubble import rank_bubble_s
from autotuner.schedules.planner import named_schedule
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import BESIDE_COMPUTE, BLOCKING, PassTimes, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pipeline to run: its schedule, and the passes of its stages."""

    pipeline_schedule: PipelineSchedule
    num_ranks: int
    stages_per_rank: int
    num_micro_batches: int
    times: PassTimes

    @property
    def schedule(self) -> Schedule:
        """What its ranks run."""
        return named_schedule(self.pipeline_schedule, self.num_ranks, self.stages_per_rank, self.num_micro_batches)


def draw(schedule: PipelineSchedule, source: random.Random) -> Case:
    """A random legal pipeline; the time unit is the forward of one layer."""
    ranks = source.choice((2, 4, 8) if schedule == PipelineSchedule.INTERLEAVED_1F1B else (2, 4, 8, 16))
    stages_per_rank = source.choice((2, 3, 4))
    if schedule != PipelineSchedule.INTERLEAVED_1F1B:
        stages_per_rank = 2 if schedule in V_SCHEDULES else 1
    rounds = max(source.choice((1, 2, 4, 8)), 2 if schedule == PipelineSchedule.DUALPIPEV else 1)
    num_stages = ranks * stages_per_rank
    per_stage = source.choice((1, 2, 4, 6))
    rest = source.choice((0, 0, 0, source.randrange(num_stages))) if stages_per_rank == 1 else 0
    layers = np.array([per_stage + (stage < rest) for stage in range(num_stages)], dtype=np.float64)
    entry, output = np.zeros(num_stages), np.zeros(num_stages)
    entry[0], output[-1] = source.uniform(0, 0.1), source.choice((0.0, source.uniform(0, 1), source.uniform(0, 4)))
    # F : I : W from 1 : 1 : 0.5 (attention has no weights) to 1 : 2.2 : 1 (recomputation before I)
    times = PassTimes(
        forward_s=tuple(layers + entry + output),
        input_s=tuple(layers * source.uniform(1.0, 2.2) + output),
        weight_s=tuple(layers * source.uniform(0.5, 1.0) + output),
        send_s=(source.choice((0.0, 0.01, 0.05, 0.2)),) * (num_stages - 1),
    )
    return Case(
        pipeline_schedule=schedule,
        num_ranks=ranks,
        stages_per_rank=stages_per_rank,
        num_micro_batches=rounds * ranks,
        times=times,
    )


def simulated_s(case: Case, *, blocking_sends: bool) -> float:
    """The step time of the event simulator."""
    return simulate(case.schedule, case.times, BLOCKING if blocking_sends else BESIDE_COMPUTE).makespan_s


def predicted_s(case: Case, *, blocking_sends: bool) -> float:
    """The step time of the closed forms, evaluated on the first and on the last rank."""
    passes = _passes_by_rank(case, blocking_sends=blocking_sends)
    layout = Layout(
        pipeline_parallel_degree=case.num_ranks,
        virtual_stages_per_rank=case.stages_per_rank,
        pipeline_schedule=case.pipeline_schedule,
    )
    ranks = np.array([0, case.num_ranks - 1])
    own = Passes(forward_s=passes[0, ranks], input_s=passes[1, ranks], weight_s=passes[2, ranks])
    rest = passes.sum(axis=1, keepdims=True) - passes[:, ranks]
    others = Passes(forward_s=rest[0], input_s=rest[1], weight_s=rest[2])
    m = np.full(2, case.num_micro_batches)
    send_s = np.full(2, 0.0 if blocking_sends else case.times.send_s[0])
    bubble_s = rank_bubble_s(LayoutColumns.from_layouts([layout, layout]), m, ranks, own, others, send_s)
    return float((m * own.total_s + bubble_s).max())


def _passes_by_rank(case: Case, *, blocking_sends: bool) -> Floats:
    """F, I and W of each rank, of shape (3, ranks); sends that block are part of the pass that sends."""
    passes = np.zeros((3, case.num_ranks))
    rank_of, send_s = case.schedule.rank_of, case.times.send_s
    for stage, rank in rank_of.items():
        passes[:, rank] += case.times.forward_s[stage], case.times.input_s[stage], case.times.weight_s[stage]
        if blocking_sends:
            passes[0, rank] += send_s[stage] if rank_of.get(stage + 1, rank) != rank else 0.0
            passes[1, rank] += send_s[stage - 1] if rank_of.get(stage - 1, rank) != rank else 0.0
    return passes
