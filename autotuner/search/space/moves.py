"""Alternatives of a layout: neighbours one step away, and layouts with other exchanges or batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from operator import gt, lt
from typing import Any, Self, cast

import numpy as np

from autotuner.core.choices import BatchBalance, GradientClip, GradientSync, PipelineSchedule, ShardLevel
from autotuner.core.columns import Booleans, LayoutColumns, broken_rows
from autotuner.core.field_change import FieldChange, difference
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.option import OptionSpec
from autotuner.core.prediction import Prediction
from autotuner.core.rules.legality import HARDWARE_RULES, IDLE_RULES, reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.stages import ONE_STAGE_SCHEDULES, V_SCHEDULES
from autotuner.core.value import derived, divisors
from autotuner.core.workload import LengthDistribution
from autotuner.costmodel.predict import predict
from autotuner.costmodel.shared.batch_shape import batch_shape

_PLAIN = Layout()

# ---------------------------------------------------------------- settled after a change
_LONE_GROUPS: tuple[tuple[tuple[str, ...], Callable[[Layout], Any]], ...] = (
    (("sequence_parallel",), lambda x: x.tensor_parallel_degree == 1),
    (
        ("pipeline_schedule", "virtual_stages_per_rank", "first_stage_less_layers", "last_stage_less_layers"),
        lambda x: x.pipeline_parallel_degree == 1,
    ),
    (("shard_level",), lambda x: x.data_parallel_shard_degree * x.context_parallel_degree == 1),
    (("reshard_after_forward",), lambda x: x.shard_level != ShardLevel.PARAMETERS),
)
"""Fields that must have their defaults if the group that they are about has one rank or shards nothing."""


def settle(layout: Layout, job: Job, *, keeps_formats: bool = False) -> Layout:
    """Return the layout with the default value for every option that has no effect with the layout's other values.

    Layouts that train in the same way then are equal.

    Args:
        layout: A layout after a change of some options.
        job: The job that the layout is for.
        keeps_formats: Leave number formats unchanged, even those that have no effect.
    """
    layout = settle_groups(layout)
    for rule in IDLE_RULES:
        if not (keeps_formats and OPTIONS[rule.field].is_number_format) and rule.broken(layout, job):
            layout = _with_defaults(layout, (rule.field,))
    return layout


def settle_groups(layout: Layout) -> Layout:
    """Return the layout with the default value for every option that has no effect because a group has one rank.

    For example, sequence parallelism has no effect with one tensor rank. The function needs no job, and the layout need
    not be legal for a job.
    """
    for names, is_lone in _LONE_GROUPS:
        if is_lone(layout):
            layout = _with_defaults(layout, names)
    return layout


def _with_defaults(layout: Layout, names: Iterable[str]) -> Layout:
    defaults = {name: OPTIONS[name].default for name in names if getattr(layout, name) != OPTIONS[name].default}
    return replace(layout, **defaults) if defaults else layout  # type: ignore[arg-type]  # each field has its own type


def settle_columns(layouts: LayoutColumns, job: Job) -> LayoutColumns:
    """Return the layouts with the default value for every option that has no effect with a layout's other values.

    Args:
        layouts: The table of layouts.
        job: The job that the layouts are for.
    """
    columns: dict[str, Any] = {name: getattr(layouts, name) for name in OPTIONS}
    for names, is_lone in _LONE_GROUPS:
        _put_defaults(columns, names, is_lone(cast("Layout", LayoutColumns(columns))))
    for rule in IDLE_RULES:
        _put_defaults(columns, (rule.field,), broken_rows(LayoutColumns(columns), job, [rule]))
    return LayoutColumns(columns)


def _put_defaults(columns: dict[str, Any], names: Iterable[str], rows: Booleans) -> None:
    for name in names:
        columns[name] = np.where(rows, getattr(_PLAIN, name), columns[name]).astype(columns[name].dtype, copy=False)


# ---------------------------------------------------------------- in the place of a layout
@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that could replace another layout, with its changes, its predicted gain and the memory it lacks."""

    layout: Layout
    changes: tuple[FieldChange, ...]
    """Changes from the other layout; empty if both layouts are equal."""
    gain: float
    """Relative gain of this layout over the other one in tokens per second; below 0 if this layout is slower."""
    prediction: Prediction
    excess_bytes: float
    """Bytes by which the peak of the layout exceeds the memory limit; 0 if it fits."""

    @classmethod
    def of(cls, layout: Layout, prediction: Prediction, job: Job, *, before: Layout, own: Prediction) -> Self:
        """Return a layout as an alternative: with its changes and its gain over the layout that it would replace.

        Args:
            layout: The alternative layout.
            prediction: Prediction of the alternative.
            job: The job of both layouts.
            before: The layout that would be replaced.
            own: Prediction of the layout that would be replaced.
        """
        return cls(
            layout=layout,
            changes=difference(before, layout),
            gain=own.step_time.total_s / prediction.step_time.total_s - 1,
            prediction=prediction,
            excess_bytes=max(0.0, prediction.memory.total_bytes - job.cluster.accelerator.memory_bytes),
        )

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)

    @property
    @derived
    def saved_share(self) -> float:
        """Step time saved, as a share of the other layout's step time; below 0 if the step gets longer."""
        return self.gain / (1 + self.gain)


# ---------------------------------------------------------------- one step away
_STEPPED = tuple(
    name
    for name, one in OPTIONS.items()
    if not one.is_split and not one.is_number_format and one.qualifies != "data_parallel_shard_degree"
    if name != "reshard_after_forward" and one.qualifies != "gradient_sync"
)
"""Fields that are changed one at a time; splits and sharding change several fields together. Number formats and details
of lossy exchanges are left out, because with them layouts are not numerically equivalent."""


def neighbours(layout: Layout, job: Job) -> tuple[Layout, ...]:
    """Return every layout that differs from a layout in one change, legal or not, each once.

    Changes without an effect are left out (another schedule with one pipeline rank, sequence parallelism with one
    tensor rank). Options that the accelerator or the software does not support are left out too. The number formats of
    matrix products, their scaling and the format of gradient sums stay as they are. Options that are not numerically
    equivalent stay as well, with two exceptions: a full gradient exchange may replace a lossy one, and clipping may
    move after the exchange. The bandwidth curve shows the gain of lossy exchanges instead.
    """
    steps = (*_batches(layout), *_trades(layout, job), *_experts(layout, job), *_schedules(layout, job))
    steps += (*_shardings(layout, job), *_ends(layout), *_options(layout, job))
    return tuple(step for step in dict.fromkeys(steps) if step != layout and _is_offered(step, layout, job))


def _is_offered(step: Layout, layout: Layout, job: Job) -> bool:
    """Return True if the software supports the changed options."""
    stack = job.stack
    return (
        step.attention_kernel in (layout.attention_kernel, *stack.attention_kernels)
        and step.pipeline_schedule
        in (layout.pipeline_schedule, PipelineSchedule.ONE_F_ONE_B, *stack.pipeline_schedules)
        and (stack.compiles or step.compiled <= layout.compiled)
    )


def _after(layout: Layout, job: Job, **changes: Any) -> Layout:
    """Return the layout with other values of some fields and all dependent fields adjusted.

    Number formats stay, because they change the losses.
    """
    return settle(replace(layout, **changes), job, keeps_formats=True)


def _batches(layout: Layout) -> Iterator[Layout]:
    yield replace(layout, micro_batch_size=2 * layout.micro_batch_size)
    if layout.micro_batch_size % 2 == 0:
        yield replace(layout, micro_batch_size=layout.micro_batch_size // 2)


def _trades(layout: Layout, job: Job) -> Iterator[Layout]:
    """Yield layouts in which a factor of 2 is moved from one degree to another."""
    for source, target in permutations(RANK_DEGREES, 2):
        if getattr(layout, source) % 2 == 0 and _may_grow(layout, target):
            degrees = {source: getattr(layout, source) // 2, target: getattr(layout, target) * 2}
            yield _after(layout, job, **degrees)


def _experts(layout: Layout, job: Job) -> Iterator[Layout]:
    """Yield layouts with twice or half the expert ranks.

    No other degree changes, because expert ranks are chosen among the other ranks.
    """
    if job.model.experts is None:
        return
    yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree * 2)
    if layout.expert_parallel_degree % 2 == 0:
        yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree // 2)


def _may_grow(layout: Layout, degree: str) -> bool:
    """Return True if a degree may grow.

    Unsharded replicas must stay unsharded, and completely sharded replicas must stay completely sharded.
    """
    if degree == "data_parallel_shard_degree":
        return layout.shard_level != ShardLevel.NONE
    if degree == "data_parallel_replicate_degree":
        return layout.shard_level == ShardLevel.NONE or layout.data_parallel_replicate_degree > 1
    return True


def _least_stages(layout: Layout, job: Job) -> int:
    """Return the smallest number of virtual stages of an interleaved schedule."""
    counts = divisors(max(1, job.model.num_layers // layout.pipeline_parallel_degree))
    return (*counts[1:2], 2)[0]


def _schedules(layout: Layout, job: Job) -> Iterator[Layout]:
    if layout.pipeline_parallel_degree == 1:
        return
    counts = divisors(max(1, job.model.num_layers // layout.pipeline_parallel_degree))
    least = {PipelineSchedule.INTERLEAVED_1F1B: _least_stages(layout, job), **dict.fromkeys(V_SCHEDULES, 2)}
    for schedule in PipelineSchedule:
        if schedule != layout.pipeline_schedule:
            stages = least.get(schedule, 1)
            yield _after(layout, job, pipeline_schedule=schedule, virtual_stages_per_rank=stages)
    if layout.pipeline_schedule == PipelineSchedule.INTERLEAVED_1F1B:
        fewer = [count for count in counts if 1 < count < layout.virtual_stages_per_rank]
        more = [count for count in counts if count > layout.virtual_stages_per_rank]
        for count in (*fewer[-1:], *more[:1]):
            yield replace(layout, virtual_stages_per_rank=count)


def _shardings(layout: Layout, job: Job) -> Iterator[Layout]:
    """Yield other ways to shard the same number of replicas.

    A group that was sharded inside nodes keeps its degree if possible.
    """
    data = layout.data_parallel_degree
    if data == 1:
        return
    shard = layout.data_parallel_shard_degree if layout.data_parallel_shard_degree > 1 else data
    for level in ShardLevel:
        if level != layout.shard_level:
            yield _after(_sharded(layout, level, shard), job)
    if layout.shard_level == ShardLevel.PARAMETERS:
        yield replace(layout, reshard_after_forward=not layout.reshard_after_forward)


def _ends(layout: Layout) -> Iterator[Layout]:
    """Yield layouts with one layer more or fewer on the first stage (embedding) or the last stage (output)."""
    if layout.pipeline_parallel_degree > 1:
        for end in ("first_stage_less_layers", "last_stage_less_layers"):
            for less in (getattr(layout, end) - 1, getattr(layout, end) + 1):
                if less >= 0:
                    yield with_choice(layout, end, less)


def _options(layout: Layout, job: Job) -> Iterator[Layout]:
    """Yield layouts with another value of one other field.

    Numbers take the neighbouring values; values that the hardware lacks are left out.
    """
    for name in _STEPPED:
        for value in _other_values(OPTIONS[name], getattr(layout, name)):
            step = _after(layout, job, **{name: value})
            if not any(rule.broken(step, job) for rule in HARDWARE_RULES):
                yield step


def _other_values(one: OptionSpec, value: int) -> tuple[int, ...]:
    if not one.is_number:
        return tuple(other for other in one.values if other != value and other not in one.not_equivalent)
    if one.offered:
        lower, higher = ([other for other in one.offered if is_beside(other, value)] for is_beside in (lt, gt))
        return (*higher[:1], *lower[-1:])
    return (2 * value, value // 2) if value % 2 == 0 else (2 * value,)


# ---------------------------------------------------------------- changed by hand
_MOST_STEPS = 8
"""Number of changes after which the search for a legal layout stops, because further layouts would have little in
common with the original."""

_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


def arrange(layout: Layout, job: Job) -> Layout:
    """Return the layout changed so that it uses all ranks of the cluster, with defaults for options without an effect.

    The number of data-parallel ranks follows from the other degrees. If the layout shards and has no replicas, all
    data-parallel ranks form one shard group. Otherwise shard groups keep their size if it divides the number of
    data-parallel ranks. The number of stages per rank changes to one that the schedule can run. If the other degrees do
    not divide the number of ranks, the layout stays illegal.
    """
    arranged = _with_its_stages(settle_groups(_on_all_ranks(layout, job)), job)
    rotation = arranged.stage_rotation % arranged.pipeline_parallel_degree
    return settle(replace(arranged, stage_rotation=rotation), job)


def _on_all_ranks(layout: Layout, job: Job) -> Layout:
    others = layout.tensor_parallel_degree * layout.pipeline_parallel_degree * layout.context_parallel_degree
    data = max(1, job.cluster.world_size // others)
    level = (
        layout.shard_level if data * layout.context_parallel_degree > 1 else ShardLevel.NONE
    )  # context ranks shard too
    in_groups = layout.data_parallel_replicate_degree > 1 and data % layout.data_parallel_shard_degree == 0
    shard = layout.data_parallel_shard_degree if in_groups and layout.data_parallel_shard_degree > 1 else data
    shard = 1 if level == ShardLevel.NONE else shard
    return replace(
        layout,
        shard_level=level,
        data_parallel_replicate_degree=data // shard,
        data_parallel_shard_degree=shard,
    )


def _with_its_stages(layout: Layout, job: Job) -> Layout:
    """Return the layout with a number of virtual stages that its schedule can run."""
    stages = layout.virtual_stages_per_rank
    if layout.pipeline_schedule in (*ONE_STAGE_SCHEDULES, PipelineSchedule.ADAPTIVE):
        stages = 1
    elif layout.pipeline_schedule in V_SCHEDULES:
        stages = 2
    elif layout.pipeline_schedule is PipelineSchedule.INTERLEAVED_1F1B and stages == 1:
        stages = _least_stages(layout, job)
    return replace(layout, virtual_stages_per_rank=stages)


def with_choice(layout: Layout, field: str, value: int) -> Layout:
    """Return the layout with another value of one option.

    A new ``data_parallel_shard_degree`` also changes the replicate degree, so that the number of data-parallel ranks
    does not change.
    """
    if field == "data_parallel_shard_degree":
        data = layout.data_parallel_degree
        return replace(layout, data_parallel_shard_degree=value, data_parallel_replicate_degree=max(1, data // value))
    return replace(layout, **{field: value})  # type: ignore[arg-type]  # each field has its own type


def nearest_legal(layout: Layout, job: Job) -> Layout | None:
    """Return a legal layout that is similar to an illegal one, or None if a few changes find none.

    Each change takes the nearest values that the broken rules suggest. If this does not help, it takes another change
    that breaks fewer rules.
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
    """Yield changed layouts for a search.

    First come the nearest values that the broken rules name, then degrees that divide the number of ranks, then any
    other step.
    """
    for reason in broken:
        if reason.nearest is not None and not reason.is_of_job:
            value = OPTIONS[reason.field].from_plain(reason.nearest)
            yield arrange(with_choice(layout, reason.field, value), job)
    for field in ("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "micro_batch_size"):
        own = getattr(layout, field)
        whole = job.workload.global_batch_size if field == "micro_batch_size" else job.cluster.world_size
        for value in divisors(whole):
            if value < own:
                yield arrange(with_choice(layout, field, value), job)
    for step in neighbours(layout, job):
        yield arrange(step, job)


def distance(one: Layout, other: Layout) -> float:
    """Return how much two layouts differ, as a number: 0 for equal layouts, and more with each difference.

    An option that is a number counts by the doublings from one value to the other. Any other option that differs counts
    1. The two data-parallel degrees are not counted, because they follow from the other degrees.
    """
    total = 0.0
    for field, option in OPTIONS.items():
        before, after = getattr(one, field), getattr(other, field)
        if field not in _DATA_DEGREES and before != after:
            total += abs(math.log2(max(after, 0.5) / max(before, 0.5))) if option.is_number else 1.0
    return total


# ---------------------------------------------------------------- ways to share what replicas learnt
_LEVELS: Mapping[ShardLevel, str] = {
    ShardLevel.NONE: "replicas",
    ShardLevel.OPTIMIZER: "ZeRO-1",
    ShardLevel.PARAMETERS: "FSDP",
}
"""Names of the shard levels that differ in communication, as people know them."""

_HSDP = "HSDP"

_LOSSY = (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.DILOCO)
"""Lossy exchanges that are compared. Striding is left out, because it sends as many bytes as random does."""


def exchange_ways(layout: Layout, job: Job) -> dict[str, Layout]:
    """Return legal layouts that differ from a layout only in sharding and gradient exchange, by name of the method.

    Methods with a full exchange come first: the layout's own sharding, and other shard levels. Methods with a lossy
    exchange keep the layout's replicas. If the layout has only one replica, each node becomes a replica. If the layout
    itself uses a lossy exchange, this exchange keeps its details; all others have the default details.
    """
    full = arrange(replace(layout, gradient_sync=GradientSync.FULL), job)
    ways = dict(_full_ways(full, job)) | dict(_lossy_ways(layout, full, job))
    return {name: way for name, way in ways.items() if not reasons(way, job)}


def _full_ways(full: Layout, job: Job) -> Iterator[tuple[str, Layout]]:
    data = full.data_parallel_degree
    for level, name in _LEVELS.items():
        yield name, _sharded(full, level, data)
    if (shard := _ranks_of_node(full, job)) not in (1, data):
        yield _HSDP, _sharded(full, ShardLevel.PARAMETERS, shard)
    own = _LEVELS.get(full.shard_level, f"{full.shard_level} sharded")
    if full.data_parallel_replicate_degree > 1 and full.shard_level != ShardLevel.NONE:
        own = _HSDP if full.shard_level == ShardLevel.PARAMETERS else f"{full.shard_level} sharded in groups"
    yield own, full


def _lossy_ways(layout: Layout, full: Layout, job: Job) -> Iterator[tuple[str, Layout]]:
    # each replica clips its own gradient, whatever the layout says
    base = replace(full, gradient_clip=GradientClip.POST)
    if base.data_parallel_replicate_degree == 1:
        base = _sharded(base, ShardLevel.PARAMETERS, _ranks_of_node(base, job))
    for sync in _LOSSY:
        own = layout if layout.gradient_sync == sync else Layout()
        details = {name: getattr(own, name) for name, one in OPTIONS.items() if one.qualifies == "gradient_sync"}
        yield str(sync), replace(base, gradient_sync=sync, **details)


def _sharded(layout: Layout, level: ShardLevel, shard: int) -> Layout:
    """Return the layout with its data-parallel ranks in shard groups of ``shard`` ranks; 1 means no sharding."""
    level = level if shard > 1 else ShardLevel.NONE
    shard = shard if level != ShardLevel.NONE else 1
    return replace(
        layout,
        shard_level=level,
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=layout.data_parallel_degree // shard,
        reshard_after_forward=layout.reshard_after_forward and level == ShardLevel.PARAMETERS,
    )


def _ranks_of_node(layout: Layout, job: Job) -> int:
    """Return the largest number of data-parallel ranks inside a node that can shard together."""
    room = job.cluster.accelerators_per_domain // (layout.tensor_parallel_degree * layout.context_parallel_degree)
    return max(count for count in divisors(layout.data_parallel_degree) if count <= max(1, room))


# ---------------------------------------------------------------- ways to deal and pack batches
_IN_WORDS: Mapping[BatchBalance, str] = {
    BatchBalance.NONE: "as they come",
    BatchBalance.STRATIFIED: "stratified",
    BatchBalance.SNAKE: "snake",
    BatchBalance.STRATIFIED_SNAKE: "stratified + snake",
    BatchBalance.GLOBAL_SORT: "global sort",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWay:
    """A method to distribute sequences of different lengths over ranks and micro-batches, with its predicted effect."""

    name: str
    """Name of the method: ``stratified + snake, packed``."""
    layout: Layout
    real_tokens: float
    """Average number of real tokens of a sequence."""
    computed_tokens: float
    """Average number of computed tokens per sequence, including padding."""
    slowest_tokens: float
    """Number of computed tokens on the slowest rank."""
    imbalance: float
    """Share by which the slowest rank computes more than the mean of the ranks."""
    padding_waste: float
    """Number of padding tokens divided by the number of real tokens."""
    step_time_s: float
    """Predicted step time, with everything else as in the layout."""
    is_own: bool
    """True for the method that the layout itself uses."""


def batch_ways(layout: Layout, job: Job) -> tuple[BatchWay, ...]:
    """Return every legal way to distribute sequences over ranks, first with padding, then with packing.

    The result is empty if all sequences have the same length. Methods that share sequences among several ranks use the
    layout's ``num_dealing_ranks`` (the number of these ranks).
    """
    if job.workload.lengths is None:
        return ()
    ways = []
    for is_packed, balance in product((False, True), BatchBalance):
        deals = balance in (BatchBalance.SNAKE, BatchBalance.STRATIFIED_SNAKE)
        group = layout.num_dealing_ranks if deals else OPTIONS["num_dealing_ranks"].default
        ways.append(replace(layout, batch_balance=balance, num_dealing_ranks=group, sequence_packing=is_packed))
    layouts = [one for one in ways if not reasons(one, job)]
    seconds = predict(LayoutColumns.from_layouts(layouts), job).step_time.total_s.tolist()
    each = zip(layouts, seconds, strict=True)
    return tuple(_way(one, job, job.workload.lengths, step_s, is_own=one == layout) for one, step_s in each)


def _way(layout: Layout, job: Job, lengths: LengthDistribution, step_time_s: float, *, is_own: bool) -> BatchWay:
    shape = batch_shape(layout, job.workload, job.cluster.accelerators_per_node)
    return BatchWay(
        name=f"{_IN_WORDS[layout.batch_balance]}{', packed' if layout.sequence_packing else ''}",
        layout=layout,
        real_tokens=lengths.mean,
        computed_tokens=shape.tokens / (1 + shape.imbalance),
        slowest_tokens=shape.tokens,
        imbalance=shape.imbalance,
        padding_waste=shape.padding_waste,
        step_time_s=step_time_s,
        is_own=is_own,
    )
