"""Every way to split ranks, layers and the batch of a job that a space asks for: one table, still without its choices.

They are counted while they are made, and so are the values that a caller names: what a slip or a stranger asks for
beyond the bounds is refused before it takes time or memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import gcd, prod
from typing import cast

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.space import SearchSpace
from autotuner.core.value import divisors

SPLIT_FIELDS = tuple(name for name, one in OPTIONS.items() if one.is_split)

MAX_SPLITS = 1 << 18
"""Twice what a model of 61 layers and 256 experts has on 1,024 ranks with every schedule and context degree."""

MAX_VALUES = 1000
"""Values of one axis; no number of ranks up to 2^20 has more than 240 divisors."""

_MAX_PIPELINES = 1 << 12
"""Schedules x virtual stages x ends that are looked at for each number of pipeline ranks."""

_PIPELINE_AXES = (
    "pipeline_schedule",
    "virtual_stages_per_rank",
    "first_stage_less_layers",
    "last_stage_less_layers",
)

_DEFAULT = Layout()


class SpaceTooLarge(InvalidInput):
    """A space names more than is looked at."""


_Pipeline = tuple[PipelineSchedule, int, int, int]
"""Schedule, stages per rank, and layers that the first and the last stage have less."""


def splits_of(job: Job, space: SearchSpace) -> LayoutColumns:
    """Candidate splits of the ranks; the choices are filled in with defaults that no degree rule reads.

    Raises:
        SpaceTooLarge: There are more than ``MAX_SPLITS``, or an axis has more than ``MAX_VALUES``.
    """
    _require_few_values(space)
    found = list(islice(_splits(job, space), MAX_SPLITS + 1))
    if len(found) > MAX_SPLITS:
        rule = f"{_named_degrees(space)} split {job.cluster.world_size} ranks in more ways than are looked at"
        raise SpaceTooLarge("space", f"more than {MAX_SPLITS}", f"{rule}; name fewer values", MAX_SPLITS)
    rows = list(dict.fromkeys(found))
    columns = {name: [getattr(_DEFAULT, name)] * len(rows) for name in OPTIONS if name not in SPLIT_FIELDS}
    columns |= {name: [row[index] for row in rows] for index, name in enumerate(SPLIT_FIELDS)}
    return LayoutColumns.from_values(columns)


def _require_few_values(space: SearchSpace) -> None:
    for name in OPTIONS:
        if name != "data_parallel_replicate_degree" and len(space.values(name) or ()) > MAX_VALUES:
            rule = f"names more values than are looked at; name at most {MAX_VALUES}"
            raise SpaceTooLarge(f"space.{name}", len(space.values(name) or ()), rule, MAX_VALUES)
    pipelines = prod(len(space.values(name) or ()) or 1 for name in _PIPELINE_AXES)
    if pipelines > _MAX_PIPELINES:
        rule = f"{', '.join(_PIPELINE_AXES)} have more combinations than are looked at; name fewer values"
        raise SpaceTooLarge("space", pipelines, rule, _MAX_PIPELINES)


def _named_degrees(space: SearchSpace) -> str:
    named = (f"{len(space.values(name) or ())} of {name}" for name in SPLIT_FIELDS[1:] if space.values(name))
    return f"these values ({', '.join(named)})"


def _splits(job: Job, space: SearchSpace) -> Iterator[tuple[int, ...]]:
    """One tuple per candidate, in the order of ``SPLIT_FIELDS``."""
    world_size = job.cluster.world_size
    num_experts = job.model.experts.num_experts if job.model.experts else 1
    experts = space.values("expert_parallel_degree") or divisors(num_experts)
    pipelines: dict[int, tuple[_Pipeline, ...]] = {}
    for tensor, pipeline, context in _model_splits(world_size, space):
        data = max(1, world_size // (tensor * pipeline * context))
        batches = space.values("micro_batch_size") or _micro_batches(
            job.workload.global_batch_size // data, context, space
        )
        shards = space.values("data_parallel_shard_degree") or _shard_degrees(data, tensor * context, job)
        if pipeline not in pipelines:
            pipelines[pipeline] = tuple(_pipelines(pipeline, job, space))
        for shard, expert, (schedule, virtual, *less), batch in product(shards, experts, pipelines[pipeline], batches):
            yield max(1, data // shard), shard, tensor, context, expert, pipeline, virtual, batch, schedule, *less


def _model_splits(world_size: int, space: SearchSpace) -> Iterator[tuple[int, int, int]]:
    """Tensor, pipeline and context degrees whose product divides the ranks; if none does, all, for a rule to refuse."""
    every = divisors(world_size)
    tensors, pipelines, contexts = (
        space.values(f"{name}_parallel_degree") or every for name in ("tensor", "pipeline", "context")
    )
    is_empty = True
    for tensor in (one for one in tensors if world_size % one == 0):
        for pipeline in (one for one in pipelines if world_size % (tensor * one) == 0):
            for context in (one for one in contexts if world_size % (tensor * pipeline * one) == 0):
                is_empty = False
                yield tensor, pipeline, context
    if is_empty:
        yield from product(tensors, pipelines, contexts)


def _shard_degrees(data: int, inner: int, job: Job) -> tuple[int, ...]:
    """Replicated, sharded inside a node, sharded over all; ``inner`` ranks lie between two data-parallel ones."""
    inside_node = gcd(data, max(1, job.cluster.accelerators_per_domain // inner))
    return tuple(sorted({1, inside_node, data}))


def _pipelines(pipeline: int, job: Job, space: SearchSpace) -> Iterator[_Pipeline]:
    """What a number of pipeline ranks may run."""
    if pipeline == 1:
        yield PipelineSchedule.ONE_F_ONE_B, 1, 0, 0
        return
    schedules = cast("tuple[PipelineSchedule, ...]", space.values("pipeline_schedule"))
    dealt = set()
    for schedule, less in product(schedules, _ends(space)):
        share = (job.model.num_layers + sum(less)) // pipeline
        for virtual in space.values("virtual_stages_per_rank") or _virtual_stages(schedule, share):
            if virtual > 1:  # rules ask how the sizes came about
                yield schedule, virtual, *less
                continue
            found = schedule, _stage_sizes(job.model.num_layers, pipeline, *less)
            if found not in dealt:
                yield schedule, virtual, *less
            dealt.add(found)


def _stage_sizes(num_layers: int, num_stages: int, first_less: int, last_less: int) -> tuple[int, ...]:
    """What tells the stages' layers apart, of two stages or more, however many there are.

    The first stage, the last, and of those between them the smaller size and how many have one layer more.
    """
    share, extra = divmod(num_layers + first_less + last_less, num_stages)
    first, last = share + (extra > 0) - first_less, share - last_less
    between, more = num_stages - 2, max(0, extra - 1)
    if more == between:  # none has the smaller size
        share, more = share + (more > 0), 0
    return first, last, share if between else 0, more


def _ends(space: SearchSpace) -> tuple[tuple[int, int], ...]:
    """Layers less on both ends; the last multiplies by the vocabulary, the first looks words up, so never it alone."""
    first, last = space.values("first_stage_less_layers"), space.values("last_stage_less_layers")
    ends = product(first or (0, 1), last or (0, 1))
    return tuple((a, b) for a, b in ends if a <= b or (first and last))


def _virtual_stages(schedule: PipelineSchedule, num_layers: int) -> tuple[int, ...]:
    """Stages per rank of so many layers."""
    match schedule:
        case PipelineSchedule.INTERLEAVED_1F1B:
            return divisors(max(1, num_layers))[1:] or (2,)  # for a rule to refuse
        case PipelineSchedule.ZBV | PipelineSchedule.DUALPIPEV:
            return (2,)
        case _:
            return (1,)


def _micro_batches(replica_batch: int, context: int, space: SearchSpace) -> tuple[int, ...]:
    """Powers of two that divide the batch of one replica, less those that fewer context ranks make pointless."""
    contexts = space.values("context_parallel_degree")
    if context % 2 == 0 and (contexts is None or context // 2 in contexts):
        return (1,)
    largest = max(1, replica_batch & -replica_batch)
    return tuple(1 << power for power in range(largest.bit_length()))
