"""A layout that somebody changes by hand: what follows from a change, and which one near it can run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import IDLE_RULES, reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.stages import ONE_STAGE_SCHEDULES, V_SCHEDULES
from autotuner.core.value import divisors
from autotuner.search.explain.neighbours import neighbours

_MOST_STEPS = 8
"""Changes after which a search for a legal layout gives up: what is further off resembles it in nothing."""

_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


def arranged(layout: Layout, job: Job) -> Layout:
    """The layout on all ranks of the cluster, and without what means nothing beside its other choices.

    Data-parallel ranks are those that the other degrees leave. They shard among all of them where the layout has no
    replicas, else in groups as large as before, as far as these divide them. A schedule has as many stages per rank as
    it runs with. A number of ranks that the other degrees do not divide stays what a rule refuses.
    """
    arranged = _on_all_ranks(layout, job)
    if arranged.tensor_parallel_degree == 1:
        arranged = replace(arranged, sequence_parallel=False)
    arranged = _scheduled(arranged, job)
    arranged = replace(arranged, stage_rotation=arranged.stage_rotation % arranged.pipeline_parallel_degree)
    if arranged.shard_level != ShardLevel.PARAMETERS:
        arranged = replace(arranged, reshard_after_forward=False)
    for rule in IDLE_RULES:
        if rule.broken(arranged, job):
            arranged = replace(arranged, **{rule.field: OPTIONS[rule.field].default})  # type: ignore[arg-type]
    return arranged


def _on_all_ranks(layout: Layout, job: Job) -> Layout:
    others = layout.tensor_parallel_degree * layout.pipeline_parallel_degree * layout.context_parallel_degree
    data = max(1, job.cluster.world_size // others)
    shares = data * layout.context_parallel_degree > 1  # context ranks share what data-parallel ranks shard
    if layout.shard_level == ShardLevel.NONE or not shares:
        return replace(
            layout,
            shard_level=ShardLevel.NONE,
            data_parallel_replicate_degree=data,
            data_parallel_shard_degree=1,
        )
    in_groups = layout.data_parallel_replicate_degree > 1 and data % layout.data_parallel_shard_degree == 0
    shard = layout.data_parallel_shard_degree if in_groups and layout.data_parallel_shard_degree > 1 else data
    return replace(layout, data_parallel_replicate_degree=data // shard, data_parallel_shard_degree=shard)


def _scheduled(layout: Layout, job: Job) -> Layout:
    if layout.pipeline_parallel_degree == 1:
        return replace(
            layout,
            pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
            virtual_stages_per_rank=1,
            first_stage_less_layers=0,
            last_stage_less_layers=0,
        )
    if layout.pipeline_schedule in (*ONE_STAGE_SCHEDULES, PipelineSchedule.ADAPTIVE):
        return replace(layout, virtual_stages_per_rank=1)
    if layout.pipeline_schedule in V_SCHEDULES:
        return replace(layout, virtual_stages_per_rank=2)
    if layout.pipeline_schedule is PipelineSchedule.INTERLEAVED_1F1B and layout.virtual_stages_per_rank == 1:
        counts = divisors(max(1, job.model.num_layers // layout.pipeline_parallel_degree))
        return replace(layout, virtual_stages_per_rank=(*counts[1:2], 2)[0])
    return layout


def with_choice(layout: Layout, field: str, value: int) -> Layout:
    """The layout with another value of a field; sharding among fewer ranks than there are makes groups of them."""
    if field == "data_parallel_shard_degree":
        data = layout.data_parallel_degree
        return replace(layout, data_parallel_shard_degree=value, data_parallel_replicate_degree=max(1, data // value))
    return replace(layout, **{field: value})  # type: ignore[arg-type]  # each field has its own type


def nearest_legal(layout: Layout, job: Job) -> Layout | None:
    """A layout that can run and differs little: what the broken rules name as nearest, else a step that breaks fewer.

    None where a few such steps end in none.
    """
    broken = reasons(layout, job)
    start = layout
    for _ in range(_MOST_STEPS):
        if not broken:
            return layout
        judged = [(step, reasons(step, job)) for step in dict.fromkeys(_steps(layout, job, broken))]
        better = [(step, why) for step, why in judged if len(why) < len(broken)]
        if not better:
            return None
        layout, broken = min(better, key=lambda one: (len(one[1]), distance(start, one[0])))
    return None


def _steps(layout: Layout, job: Job, broken: Iterable[Reason]) -> Iterator[Layout]:
    for reason in broken:
        if reason.nearest is not None and not reason.is_of_job:
            value = OPTIONS[reason.field].from_plain(reason.nearest)
            yield arranged(with_choice(layout, reason.field, value), job)
    yield from _smaller_degrees(layout, job)
    for step in neighbours(layout, job):
        yield arranged(step, job)


def _smaller_degrees(layout: Layout, job: Job) -> Iterator[Layout]:
    """Degrees that divide the ranks there are, in the place of those that do not."""
    for field in ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "micro_batch_size"):
        own = getattr(layout, field)
        whole = job.workload.global_batch_size if field == "micro_batch_size" else job.cluster.world_size
        for value in divisors(whole):
            if value < own:
                yield arranged(with_choice(layout, field, value), job)


def distance(one: Layout, other: Layout) -> float:
    """How much two layouts differ: doublings of numbers, and choices; data-parallel ranks are what the others leave."""
    total = 0.0
    for field, option in OPTIONS.items():
        if field in _DATA_DEGREES or getattr(one, field) == getattr(other, field):
            continue
        before, after = getattr(one, field), getattr(other, field)
        total += abs(math.log2(max(after, 0.5) / max(before, 0.5))) if option.is_number else 1.0
    return total
