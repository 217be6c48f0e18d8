"""Legal layouts: every legal layout of a job, as columns.

Two small tables are combined: the *degrees* (the splits of the ranks) and the *choices* (the other options, which any
split may have). A rule of ``legality`` whose field is a degree is applied to the degrees alone; a rule that reads no
degree is applied to the choices alone. Both happen before the tables are combined, so that the large table has few
illegal rows. Splits and named values are counted before they are made, so that requests beyond the limits are refused
before they use time or memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns, as_column, broken_rows, concatenate
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import IDLE_RULES, RULES
from autotuner.core.rules.rule import Rule, fields_read
from autotuner.core.space import SearchSpace
from autotuner.core.value import divisors
from autotuner.costmodel.predict import CHUNK

SPLIT_FIELDS = tuple(name for name, one in OPTIONS.items() if one.is_split)

MAX_SPLITS = 1 << 18
"""Largest number of splits: twice the number for a model of 61 layers and 256 experts on 1,024 ranks with every
schedule and context degree."""

MAX_VALUES = 1000
"""Largest number of values of one axis. No number of ranks up to 2^20 has more than 240 divisors."""

_MAX_PIPELINES = 1 << 12
"""Largest number of combinations of schedule, virtual stages and end stages for each number of pipeline ranks."""

_PIPELINE_AXES = (
    "pipeline_schedule",
    "virtual_stages_per_rank",
    "first_stage_less_layers",
    "last_stage_less_layers",
)

_DEFAULT = Layout()


class SpaceTooLarge(InvalidInput):
    """Raised when a search space has more values or layouts than the search can check."""


_Pipeline = tuple[PipelineSchedule, int, int, int]
"""Schedule, stages per rank, and the numbers of layers by which the first and the last stage have fewer."""

_Axis = Sequence[tuple[int, ...]]
"""Values of some fields of a split that change together."""


def splits_of(job: Job, space: SearchSpace) -> LayoutColumns:
    """Return all candidate splits of the ranks and the batch: degrees, micro-batch size and pipeline schedule.

    In the result, all other options have their defaults, because rules about splits do not depend on them.

    Raises:
        SpaceTooLarge: There are more than ``MAX_SPLITS`` splits, or an option has more than ``MAX_VALUES`` values.
    """
    _require_few_values(space)
    blocks, num_splits = [np.empty((len(_SPLIT_COLUMNS), 0), np.int64)], 0
    for axes in _splits(job, space):
        num_splits += prod(map(len, axes))
        if num_splits > MAX_SPLITS:
            named = ", ".join(
                f"{len(_named(space, name))} of {name}" for name in SPLIT_FIELDS[1:] if space.values(name)
            )
            rule = f"these values ({named}) allow too many ways to split {job.cluster.world_size} ranks"
            raise SpaceTooLarge("space", f"more than {MAX_SPLITS}", f"{rule}; name fewer values", MAX_SPLITS)
        blocks.append(_product(axes))
    columns = {name: np.full(num_splits, getattr(_DEFAULT, name)) for name in OPTIONS if name not in SPLIT_FIELDS}
    return LayoutColumns.from_values(columns | dict(zip(_SPLIT_COLUMNS, np.concatenate(blocks, axis=1), strict=True)))


_SPLIT_COLUMNS = (
    *("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree"),
    *("context_parallel_degree", "expert_parallel_degree", "pipeline_parallel_degree"),
    *_PIPELINE_AXES,
    "micro_batch_size",
)
"""Fields of a split in the order in which ``_splits`` yields them."""


def _product(axes: Sequence[_Axis]) -> npt.NDArray[np.int64]:
    """Return every combination of the axes, the last of which changes fastest, as an array (fields, combinations)."""
    rows = np.indices([len(axis) for axis in axes]).reshape(len(axes), -1)
    return np.hstack([np.array(axis)[row] for axis, row in zip(axes, rows, strict=True)]).T


def _require_few_values(space: SearchSpace) -> None:
    for name in OPTIONS:
        if name != "data_parallel_replicate_degree" and len(_named(space, name)) > MAX_VALUES:
            rule = f"names more values than the search can try; name at most {MAX_VALUES}"
            raise SpaceTooLarge(f"space.{name}", len(_named(space, name)), rule, MAX_VALUES)
    pipelines = prod(len(_named(space, name)) or 1 for name in _PIPELINE_AXES)
    if pipelines > _MAX_PIPELINES:
        rule = f"{', '.join(_PIPELINE_AXES)} have too many combinations; name fewer values"
        raise SpaceTooLarge("space", pipelines, rule, _MAX_PIPELINES)


def _splits(job: Job, space: SearchSpace) -> Iterator[tuple[_Axis, ...]]:
    """Yield axes whose products are the candidate splits, with their fields in the order of ``_SPLIT_COLUMNS``."""
    world_size = job.cluster.world_size
    num_experts = job.model.experts.num_experts if job.model.experts else 1
    experts = space.values("expert_parallel_degree") or divisors(num_experts)
    pipelines: dict[int, tuple[_Pipeline, ...]] = {}
    for tensor, pipeline, context in _model_splits(world_size, space):
        data = max(1, world_size // (tensor * pipeline * context))
        own_batch = job.workload.global_batch_size // data
        batches = space.values("micro_batch_size") or _micro_batches(own_batch, context, space)
        inside_node = gcd(data, max(1, job.cluster.accelerators_per_domain // (tensor * context)))
        shards = space.values("data_parallel_shard_degree") or sorted({1, inside_node, data})
        if pipeline not in pipelines:
            pipelines[pipeline] = tuple(_pipelines(pipeline, job, space))
        yield (
            [(max(1, data // shard), shard, tensor, context) for shard in shards],
            [(expert, pipeline) for expert in experts],
            pipelines[pipeline],
            [(batch,) for batch in batches],
        )


def _model_splits(world_size: int, space: SearchSpace) -> Iterator[tuple[int, int, int]]:
    """Yield tensor, pipeline and context degrees whose product divides the number of ranks.

    If there are none, all combinations are yielded, so that a rule can state the reason.
    """
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


def _pipelines(pipeline: int, job: Job, space: SearchSpace) -> Iterator[_Pipeline]:
    """Yield the schedules, stages and end stages that a number of pipeline ranks can have."""
    if pipeline == 1:
        yield PipelineSchedule.ONE_F_ONE_B, 1, 0, 0
        return
    schedules = cast("tuple[PipelineSchedule, ...]", space.values("pipeline_schedule"))
    # the last stage computes more (output projection) than the first, so the first is never the only smaller one
    first, last = space.values("first_stage_less_layers"), space.values("last_stage_less_layers")
    usual_last = sorted({0, 1, *(first or ())})  # so that a named first stage has at least one last stage
    ends = [(a, b) for a, b in product(first or (0, 1), last or usual_last) if a <= b or (first and last)]
    yielded = set()
    for schedule, less in product(schedules, ends):
        share = (job.model.num_layers + sum(less)) // pipeline
        for virtual in space.values("virtual_stages_per_rank") or _virtual_stages(schedule, share):
            if virtual > 1:  # rules read how the sizes were chosen
                yield schedule, virtual, *less
                continue
            found = schedule, _stage_sizes(job.model.num_layers, pipeline, *less)
            if found not in yielded:
                yield schedule, virtual, *less
            yielded.add(found)


def _stage_sizes(num_layers: int, num_stages: int, first_less: int, last_less: int) -> tuple[int, ...]:
    """Return a short key that is equal if all stages have equal layers, for two or more stages.

    It has the first stage, the last stage, and for the stages between them the smaller size and the number of stages
    with one layer more.
    """
    share, extra = divmod(num_layers + first_less + last_less, num_stages)
    first, last = share + (extra > 0) - first_less, share - last_less
    between, more = num_stages - 2, max(0, extra - 1)
    if more == between:  # no stage has the smaller size
        share, more = share + (more > 0), 0
    return first, last, share if between else 0, more


def _virtual_stages(schedule: PipelineSchedule, num_layers: int) -> tuple[int, ...]:
    """Return the possible numbers of stages per rank for a model with this number of layers."""
    match schedule:
        case PipelineSchedule.INTERLEAVED_1F1B:
            return divisors(max(1, num_layers))[1:] or (2,)  # yielded so that a rule can refuse it
        case PipelineSchedule.ZBV | PipelineSchedule.DUALPIPEV:
            return (2,)
        case _:
            return (1,)


def _micro_batches(replica_batch: int, context: int, space: SearchSpace) -> tuple[int, ...]:
    """Return the powers of two that divide the batch of one replica.

    Sizes for which fewer context ranks would be better are left out.
    """
    contexts = space.values("context_parallel_degree")
    if context % 2 == 0 and (contexts is None or context // 2 in contexts):
        return (1,)
    largest = max(1, replica_batch & -replica_batch)
    return tuple(1 << power for power in range(largest.bit_length()))


# ---------------------------------------------------------------- their crossing
_CHOICE_FIELDS = tuple(name for name, one in OPTIONS.items() if not one.is_split)

_BLOCK = 1 << 16
"""Number of combined rows that are checked at once. Most of them may be illegal, and all rows at once would fill the
memory."""

MAX_CANDIDATES = 10_000_000
"""Largest number of combined rows. A core checks and predicts about a million of them per second."""

_MAX_COMBINATIONS = 1 << 20
"""Largest number of combinations of choices, because all of them are in memory at once."""


def legal_layouts(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> LayoutColumns:
    """Return every layout of the space that keeps all rules, each once, in an order that is always the same.

    If the space has no values for an option, the function tries these values:

    * tensor, pipeline and context degrees: every divisor of the number of ranks; expert degrees: every divisor of the
      number of experts;
    * data-parallel ranks split into replicate x shard with a shard degree of 1 (replicated), all of them (sharded) or
      as many as a node holds (sharded inside a node, replicated across);
    * micro-batch sizes: powers of two that divide the batch of one replica. With context parallelism, larger
      micro-batches are left out if half as many context ranks with half the micro-batch size hold as many tokens and
      exchange less;
    * layers on the first and last pipeline stage: as many as on other stages, one less on the last stage, or one less
      on both; if only the first stage has values above 1, as many less on the last. Choices that give the same number
      of layers on every stage are left out;
    * virtual stages: every number that divides the layers of a pipeline rank evenly, apart from smaller first and last
      stages.

    An option that has no effect with the other values of a layout stays at its default, even if the space has other
    values for it. Examples are the schedule, virtual stages and smaller end stages with one pipeline rank, a
    recomputation interval without recomputation, and an fp8 recipe without fp8.

    Args:
        job: The job.
        space: The search space; None: the default values of every option.
        rules: Rules that a layout must keep.

    Raises:
        SpaceTooLarge: More than ``MAX_CANDIDATES`` candidate layouts would have to be checked.
    """
    chunks = list(legal_chunks(job, space, rules))
    return chunks[0] if len(chunks) == 1 else concatenate(chunks)


def legal_chunks(
    job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES, most: int = MAX_CANDIDATES
) -> Iterator[LayoutColumns]:
    """Yield the layouts of ``legal_layouts`` in tables of ``CHUNK`` rows; the last table is shorter and may be empty.

    Raises:
        SpaceTooLarge: More than ``most`` candidate layouts would have to be checked; raised before the first table.
    """
    pending: list[LayoutColumns] = []
    for block in _legal_blocks(job, space or SearchSpace(), rules, most):
        pending.append(block)
        while sum(map(len, pending)) > CHUNK:
            whole = concatenate(pending)
            yield whole.take(slice(0, CHUNK))
            pending = [whole.take(slice(CHUNK, None))]
    yield concatenate(pending)


def _legal_blocks(job: Job, space: SearchSpace, rules: Sequence[Rule], most: int) -> Iterator[LayoutColumns]:
    """Yield blocks of legal layouts, one block of degrees after the other."""
    degrees = splits_of(job, space)
    degrees = degrees.take(~broken_rows(degrees, job, [r for r in rules if r.field in SPLIT_FIELDS]))
    choice_rules = [rule for rule in rules if rule.field not in SPLIT_FIELDS]
    choices = combinations_of(job, space)
    alone = [broken for rule in choice_rules if (broken := broken_alone(rule, choices, job)) is not None]
    # combinations that may be legal with some degrees
    possible = ~np.logical_or.reduce(alone) if alone else slice(None)
    choices = {name: column[possible] for name, column in choices.items()}
    if not named_without_default(space):  # so that combining changes no option, and earlier results of rules stay valid
        choice_rules = [rule for rule in choice_rules if not fields_read(rule, job) <= choices.keys()]
    if len(degrees) * length_of(choices) > most:
        crossing = (
            f"{len(degrees)} splits of the job x {length_of(choices)} combinations of choices ({_longest(space)})"
        )
        rule = f"{crossing} are too many layouts to check; name fewer values"
        raise SpaceTooLarge("space", len(degrees) * length_of(choices), rule, most)
    for layouts in crossings(degrees, choices, job, space):
        yield layouts.take(np.flatnonzero(~broken_rows(layouts, job, choice_rules)))


def _longest(space: SearchSpace) -> str:
    """Return the name of the axis of choices with most values, for messages."""
    counted = sorted(((len(_named(space, name)), name) for name in _CHOICE_FIELDS), reverse=True)
    return ", ".join(f"{count} of {name}" for count, name in counted[:3] if count > 1)


def crossings(degrees: LayoutColumns, choices: _Choices, job: Job, space: SearchSpace) -> Iterator[_Crossing]:
    """Yield every split with every combination of the other options, in tables of at most ``_BLOCK`` rows.

    A split is one choice of the degrees, the micro-batch size and the pipeline schedule. Layouts that break rules are
    not removed. If there are no combinations, one empty block is yielded.
    """
    num_choices = length_of(choices)
    step = max(1, _BLOCK // max(1, num_choices))
    for start in range(0, max(1, len(degrees)), step):
        some = degrees.take(slice(start, start + step))
        for first in range(0, max(1, num_choices), _BLOCK):
            part = {name: column[first : first + _BLOCK] for name, column in choices.items()}
            layouts = _Crossing(some, part)
            for rule in named_without_default(space):  # an option that has no effect with these degrees
                idle = broken_rows(layouts, job, [rule])
                layouts.put(rule.field, _defaulted(getattr(layouts, rule.field), idle, rule.field, space))
            yield layouts


_Choices: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of the choices, with one row for each combination."""


def combinations_of(job: Job, space: SearchSpace) -> _Choices:
    """Return every combination of values for the options that are not part of a split.

    A split is one choice of the degrees, the micro-batch size and the pipeline schedule. An option that has no effect
    with the other values of its combination gets its default.

    Raises:
        SpaceTooLarge: There are more than ``_MAX_COMBINATIONS`` combinations.
    """
    named = {name: _named(space, name) for name in _CHOICE_FIELDS}
    total = prod(len(values) for values in named.values())
    if total > _MAX_COMBINATIONS:
        what = f"combinations of options ({_longest(space)}) are too many; name fewer values"
        raise SpaceTooLarge("space", total, what, _MAX_COMBINATIONS)
    choices, repeats = {}, total
    for name, values in named.items():
        repeats //= len(values)
        column = np.repeat(as_column(name, values), repeats)
        choices[name] = np.tile(column, total // len(column))
    for rule in named_without_default(space):
        idle = broken_alone(rule, choices, job)
        if idle is not None:
            choices[rule.field] = _defaulted(choices[rule.field], idle, rule.field, space)
    return choices


def broken_alone(rule: Rule, choices: _Choices, job: Job) -> npt.NDArray[np.bool_] | None:
    """Return a mask over combinations of options: True for a combination that breaks the rule.

    The result is None if the rule also depends on an option that is not part of the combinations, such as a parallel
    degree.
    """
    if not fields_read(rule, job) <= choices.keys():
        return None
    verdict = rule.broken(cast("Layout", SimpleNamespace(**choices)), job)
    return np.broadcast_to(np.asarray(verdict, dtype=np.bool_), (length_of(choices),))


def named_without_default(space: SearchSpace) -> list[Rule]:
    """Return the rules about options without an effect whose default value is not in the caller's space.

    Such a rule says that an option must have its default value where it has no effect with the other values of the
    layout. If the space does not include the default, the rule would remove all these layouts, so that the search sets
    the default itself. If the space includes it, the rule only removes layouts that are equal to another layout of the
    space.
    """
    return [rule for rule in IDLE_RULES if getattr(_DEFAULT, rule.field) not in _named(space, rule.field)]


def _defaulted(
    column: npt.NDArray[Any], idle: npt.NDArray[np.bool_], name: str, space: SearchSpace
) -> npt.NDArray[Any]:
    """Return the column with the default where the option has no effect.

    Only the first named value is replaced; with the other values, it would be the same layout again.
    """
    first, *_ = _named(space, name)
    settled = np.where(idle & (column == first), getattr(_DEFAULT, name), column)
    return settled.astype(column.dtype, copy=False)


def _named(space: SearchSpace, name: str) -> tuple[int, ...]:
    """Return the values of an axis that always has named values."""
    return space.values(name) or ()


def length_of(choices: _Choices) -> int:
    """Return the number of combinations of options in a table with one column per option."""
    return len(choices[_CHOICE_FIELDS[0]])


class _Crossing(LayoutColumns):
    """Combines each row of the degrees with each combination of choices. A column is made when it is first read.

    Rules read only a few columns, and most rows turn out to be illegal, so that their other columns are never made.
    """

    def __init__(self, degrees: LayoutColumns, choices: _Choices) -> None:
        self.__dict__.update(_degrees=degrees, _choices=choices, _changed={})

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        degrees, choices = self.__dict__["_degrees"], self.__dict__["_choices"]
        if name in choices:
            column = np.tile(choices[name], len(degrees))
        elif name in OPTIONS:
            column = np.repeat(getattr(degrees, name), length_of(choices))
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, column)
        return column

    def __len__(self) -> int:
        return len(self.__dict__["_degrees"]) * length_of(self.__dict__["_choices"])

    def put(self, name: str, column: npt.NDArray[Any]) -> None:
        """Replace a column."""
        self.__dict__["_changed"][name] = column
        object.__setattr__(self, name, column)

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """Return all columns of some rows."""
        rows = np.arange(len(self))[index]
        degrees, choices, changed = (self.__dict__[name] for name in ("_degrees", "_choices", "_changed"))
        of_degrees, of_choices = np.divmod(rows, max(1, length_of(choices)))
        columns = {name: getattr(degrees, name).take(of_degrees) for name in SPLIT_FIELDS}
        columns |= {name: column.take(of_choices) for name, column in choices.items()}
        return LayoutColumns(columns | {name: column[rows] for name, column in changed.items()})
