"""How far the closed forms of ``autotuner.costmodel.step.bubble`` are from the event simulator on unequal stages.

``python -m bench.schedule_gap`` draws pipelines of a transformer (layers that need not divide, a last stage heavier by
up to four layers, links up to a fifth of a layer's forward) and prints the relative error of the step time, mean and
largest per schedule, for sends that overlap with compute and for sends that block it; then that of the closed form of
planned pipelines (``costmodel.step.planned``), some of whose links are late by up to five forwards, beside the
planner's makespan.
"""

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
from autotuner.costmodel.step.planned import Planned
from autotuner.costmodel.step.sends import Hops, StagePasses
from autotuner.schedules.planner import named_schedule, plan
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import BESIDE_COMPUTE, BLOCKING, PassTimes, simulate

NUM_CASES = 250


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


def main() -> None:
    """Print mean and largest error for each schedule."""
    print(f"{'schedule':18s} {'overlapping sends':>20s} {'blocking sends':>20s}   mean and largest error, %")  # noqa: T201
    for schedule in PipelineSchedule:
        if schedule == PipelineSchedule.ADAPTIVE:  # planned from the times of each case: below
            continue
        source = random.Random(0)
        cases = [draw(schedule, source) for _ in range(NUM_CASES)]
        columns = []
        for blocking in (False, True):
            pairs = [(predicted_s(c, blocking_sends=blocking), simulated_s(c, blocking_sends=blocking)) for c in cases]
            errors = np.array([abs(predicted / simulated - 1) for predicted, simulated in pairs])
            columns.append(f"{100 * errors.mean():12.2f} {100 * errors.max():7.2f}")
        print(f"{schedule.label:18s} {' '.join(columns)}")  # noqa: T201  # a benchmark prints its result
    errors = np.array([_planned_error(random.Random(seed)) for seed in range(NUM_CASES)])
    largest = f"{100 * np.abs(errors).mean():12.2f} {100 * np.abs(errors).max():7.2f}"
    print(f"{'planned, slow links':18s} {largest}")  # noqa: T201


def _planned_error(source: random.Random) -> float:
    """Of one planned pipeline with late links."""
    p, forward = source.choice((2, 4, 8)), source.choice((1.0, 2.0, 4.0))
    send_s = [source.choice((0.0, 0.01, 0.05)) * forward] * (p - 1)
    for _ in range(source.choice((0, 1, 1, 2))):
        send_s[source.randrange(p - 1)] = source.choice((1, 2, 3, 5)) * forward
    output, slower, weight = source.choice((0.0, 1.0)) * source.random(), source.uniform(1, 2.2), source.uniform(0.5, 1)
    ends = [0.0] * (p - 1) + [output]
    times = PassTimes(
        forward_s=tuple(forward + end for end in ends),
        input_s=tuple(slower * forward + end for end in ends),
        weight_s=tuple(weight * forward + end for end in ends),
        send_s=tuple(send_s),
    )
    m = np.array([p * source.choice((1, 2, 4))])
    flies_s = np.array([[*send_s, 0.0]])
    nothing = np.zeros_like(flies_s)
    hops = Hops(blocks_s=nothing, flies_s=flies_s, receives_s=nothing, num_delegates=np.zeros(1, np.int64))
    passes = StagePasses(**{name: np.array([getattr(times, name)]) for name in ("forward_s", "input_s", "weight_s")})
    form = Planned.of(passes, hops, np.zeros(1, np.int64), m)
    return float(form.step_s(m, np.zeros((1, p - 1)))[0]) / plan(times, int(m[0])).makespan_s - 1


if __name__ == "__main__":
    main()
