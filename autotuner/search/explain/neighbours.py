"""The layouts one step away from a layout: one choice taken to its next value, or a factor moved between degrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

from autotuner.core.choices import PipelineSchedule, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.option import OptionSpec
from autotuner.core.rules.legality import HARDWARE_RULES, IDLE_RULES
from autotuner.core.stages import V_SCHEDULES
from autotuner.core.value import divisors

_STEPPED = tuple(
    name
    for name, one in OPTIONS.items()
    if not one.is_split and not one.is_number_format and one.qualifies != "data_parallel_shard_degree"
    if name != "reshard_after_forward" and one.qualifies != "gradient_sync"
)
"""Fields that take one step by themselves; splits and sharding move several. Formats and details of lossy exchanges
change the mathematics."""


def neighbours(layout: Layout, job: Job) -> tuple[Layout, ...]:
    """Every layout one step away, legal or not, each once.

    A step that would say nothing is left out: schedules of one pipeline rank, sequence parallelism over one tensor
    rank, what the accelerator or the software lacks. What changes the mathematics stays, or goes: number formats of
    products, their scales and the sums of gradients; what replicas exchange and clip, but for a full exchange in the
    place of a lossy one, and clipping behind it. The bandwidth curve tells what lossy exchanges would bring.
    """
    steps = (*_batches(layout), *_trades(layout, job), *_experts(layout, job), *_schedules(layout, job))
    steps += (*_shardings(layout, job), *_ends(layout), *_options(layout, job))
    return tuple(step for step in dict.fromkeys(steps) if step != layout and _is_offered(step, layout, job))


def _is_offered(step: Layout, layout: Layout, job: Job) -> bool:
    """Whether the software has what changes."""
    stack = job.stack
    return (
        step.attention_kernel in (layout.attention_kernel, *stack.attention_kernels)
        and step.pipeline_schedule
        in (layout.pipeline_schedule, PipelineSchedule.ONE_F_ONE_B, *stack.pipeline_schedules)
        and (stack.compiles or step.compiled <= layout.compiled)
    )


def _batches(layout: Layout) -> Iterator[Layout]:
    yield replace(layout, micro_batch_size=2 * layout.micro_batch_size)
    if layout.micro_batch_size % 2 == 0:
        yield replace(layout, micro_batch_size=layout.micro_batch_size // 2)


def _trades(layout: Layout, job: Job) -> Iterator[Layout]:
    """A factor of 2 moved from one degree to another."""
    for source, target in permutations(RANK_DEGREES, 2):
        if getattr(layout, source) % 2 == 0 and _may_grow(layout, target):
            degrees = {source: getattr(layout, source) // 2, target: getattr(layout, target) * 2}
            yield _consistent(layout, job, **degrees)


def _experts(layout: Layout, job: Job) -> Iterator[Layout]:
    """Twice or half the expert ranks; they are borrowed from the others, so no other degree moves."""
    if job.model.experts is None:
        return
    yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree * 2)
    if layout.expert_parallel_degree % 2 == 0:
        yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree // 2)


def _may_grow(layout: Layout, degree: str) -> bool:
    """Replicas that are not sharded stay so, and replicas that are all sharded stay that."""
    if degree == "data_parallel_shard_degree":
        return layout.shard_level != ShardLevel.NONE
    if degree == "data_parallel_replicate_degree":
        return layout.shard_level == ShardLevel.NONE or layout.data_parallel_replicate_degree > 1
    return True


def _consistent(layout: Layout, job: Job, **changes: Any) -> Layout:
    """The layout with these fields, and without what one rank of a kind cannot have or what now means nothing."""
    moved = replace(layout, **changes)
    if moved.tensor_parallel_degree == 1:
        moved = replace(moved, sequence_parallel=False)
    if moved.pipeline_parallel_degree == 1:
        moved = replace(
            moved,
            pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
            virtual_stages_per_rank=1,
            first_stage_less_layers=0,
            last_stage_less_layers=0,
        )
    if moved.data_parallel_shard_degree == 1:
        moved = replace(moved, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    for rule in IDLE_RULES:
        if not OPTIONS[rule.field].is_number_format and rule.broken(moved, job):
            moved = replace(moved, **{rule.field: OPTIONS[rule.field].default})  # type: ignore[arg-type]
    return moved


def _schedules(layout: Layout, job: Job) -> Iterator[Layout]:
    if layout.pipeline_parallel_degree == 1:
        return
    counts = divisors(max(1, job.model.num_layers // layout.pipeline_parallel_degree))
    least = {PipelineSchedule.INTERLEAVED_1F1B: (*counts[1:2], 2)[0], **dict.fromkeys(V_SCHEDULES, 2)}
    for schedule in PipelineSchedule:
        if schedule != layout.pipeline_schedule:
            stages = least.get(schedule, 1)
            yield _consistent(layout, job, pipeline_schedule=schedule, virtual_stages_per_rank=stages)
    if layout.pipeline_schedule == PipelineSchedule.INTERLEAVED_1F1B:
        fewer = [count for count in counts if 1 < count < layout.virtual_stages_per_rank]
        more = [count for count in counts if count > layout.virtual_stages_per_rank]
        for count in (*fewer[-1:], *more[:1]):
            yield replace(layout, virtual_stages_per_rank=count)


def _shardings(layout: Layout, job: Job) -> Iterator[Layout]:
    """Other ways to shard as many replicas; a group that was split inside nodes keeps its split where it can."""
    data = layout.data_parallel_degree
    if data == 1:
        return
    shard = layout.data_parallel_shard_degree if layout.data_parallel_shard_degree > 1 else data
    for level in ShardLevel:
        if level == layout.shard_level:
            continue
        degree = 1 if level == ShardLevel.NONE else shard
        yield _consistent(
            layout,
            job,
            shard_level=level,
            data_parallel_shard_degree=degree,
            data_parallel_replicate_degree=data // degree,
            reshard_after_forward=layout.reshard_after_forward and level == ShardLevel.PARAMETERS,
        )
    if layout.shard_level == ShardLevel.PARAMETERS:
        yield replace(layout, reshard_after_forward=not layout.reshard_after_forward)


def _ends(layout: Layout) -> Iterator[Layout]:
    """A layer more or less on the first stage, which has the embedding, and on the last, which has the vocabulary."""
    if layout.pipeline_parallel_degree == 1:
        return
    first, last = layout.first_stage_less_layers, layout.last_stage_less_layers
    for less in (first - 1, first + 1):
        if less >= 0:
            yield replace(layout, first_stage_less_layers=less)
    for less in (last - 1, last + 1):
        if less >= 0:
            yield replace(layout, last_stage_less_layers=less)


def _options(layout: Layout, job: Job) -> Iterator[Layout]:
    """Every other field taken to each of its other values, or to half and twice its number, where hardware has it."""
    for name in _STEPPED:
        for value in _other_values(OPTIONS[name], getattr(layout, name)):
            step = _consistent(layout, job, **{name: value})
            if not any(rule.broken(step, job) for rule in HARDWARE_RULES):
                yield step


def _other_values(one: OptionSpec, value: int) -> tuple[int, ...]:
    if not one.is_number:
        return tuple(other for other in one.values if other != value and other not in one.not_equivalent)
    return (2 * value, value // 2) if value % 2 == 0 else (2 * value,)
