"""Every legal layout of a job, as columns.

Two small tables are crossed: the *degrees* (how the ranks are split, by Python loops over a few thousand
combinations) and the *choices* (switches that any split may take). A rule of ``legality`` that names a degree is
judged on the degrees alone, one that reads no degree on the choices alone, before the crossing, so the large table is
built almost without illegal rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from autotuner.costmodel.columns import LayoutColumns, as_column, broken_rows, joined
from autotuner.costmodel.predict import CHUNK
from autotuner.domain.check import divisors
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.stages import stage_sizes
from autotuner.domain.layouts.choice import PipelineSchedule
from autotuner.domain.layouts.layout import LAYOUT_FIELDS, OPTIONS, Layout
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.rules.choice_rules import IDLE_RULES
from autotuner.domain.rules.legality import RULES, Reason, Rule
from autotuner.domain.rules.rule import fields_read

__all__ = ["explain_empty", "legal_chunks", "legal_layouts"]

_CHOICE_FIELDS = tuple(name for name, one in OPTIONS.items() if not one.is_split)
_DEGREE_FIELDS = tuple(name for name, one in OPTIONS.items() if one.is_split)

_DEFAULT = Layout()

_BLOCK = 1 << 16
"""Rows of the crossing judged at once; most of them may be illegal, and all at once would fill the memory."""


def legal_layouts(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> LayoutColumns:
    """Every layout of the space that keeps all rules, each once, in an order that depends on nothing else.

    Where the space names no values, these are tried:

    * tensor, pipeline and context degrees: every divisor of the number of ranks; expert degrees: every divisor of
      the number of experts;
    * data-parallel ranks split into replicate x shard with a shard degree of 1 (replicated), all of them (sharded)
      or as many as a node holds (sharded inside a node, replicated across);
    * micro-batch sizes: powers of two that divide the batch of one replica; one sequence, where half as many context
      ranks with half the micro-batch hold as many tokens and exchange less;
    * fewer layers on the ends of a pipeline: as many as elsewhere, one less on the last stage, one less on both,
      unless every stage has as many layers either way;
    * virtual stages: every number that divides the layers of a pipeline rank between smaller ends.

    A choice that means nothing beside the others stays at its default, whatever the space names for it: schedules,
    virtual stages and smaller ends of one pipeline rank, an interval where nothing recomputes, a recipe without fp8.
    """
    chunks = list(legal_chunks(job, space, rules))
    return chunks[0] if len(chunks) == 1 else joined(chunks)


def legal_chunks(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> Iterator[LayoutColumns]:
    """``legal_layouts`` in tables of ``CHUNK`` rows, one after the other; the last is shorter, and may be empty."""
    pending: list[LayoutColumns] = []
    for block in _legal_blocks(job, space or SearchSpace(), rules):
        pending.append(block)
        while sum(map(len, pending)) > CHUNK:
            whole = joined(pending)
            yield whole.take(slice(0, CHUNK))
            pending = [whole.take(slice(CHUNK, None))]
    yield joined(pending)


def _legal_blocks(job: Job, space: SearchSpace, rules: Sequence[Rule]) -> Iterator[LayoutColumns]:
    """The legal layouts of some degrees after the other."""
    degrees = _degrees(job, space)
    degrees = degrees.take(~broken_rows(degrees, job, [r for r in rules if r.field in _DEGREE_FIELDS]))
    choice_rules = [rule for rule in rules if rule.field not in _DEGREE_FIELDS]
    choices = _possible(_choices(job, space), job, choice_rules)
    if not _named_without_default(space):  # so that crossing changes no choice, and what was judged alone stays true
        choice_rules = [rule for rule in choice_rules if not fields_read(rule, job) <= choices.keys()]
    step = max(1, _BLOCK // max(1, _length(choices)))
    for start in range(0, max(1, len(degrees)), step):
        layouts = _Crossing(degrees.take(slice(start, start + step)), choices)
        _settle(layouts, job, space)
        yield layouts.take(np.flatnonzero(~broken_rows(layouts, job, choice_rules)))


def explain_empty(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> tuple[Reason, ...]:
    """Why the space holds no legal layout: each rule that removes some, the one that removes most first.

    The message says how many of the candidates break the rule and shows the first of them; a candidate may break
    several. Empty when nothing is wrong.
    """
    space = space or SearchSpace()
    layouts = _Crossing(_degrees(job, space), _choices(job, space))
    _settle(layouts, job, space)
    removed = [(rule, broken_rows(layouts, job, [rule])) for rule in rules]
    reasons = [(int(broken.sum()), _reason(rule, broken, layouts, job)) for rule, broken in removed if broken.any()]
    return tuple(reason for _, reason in sorted(reasons, key=lambda counted: -counted[0]))


def _reason(rule: Rule, broken: npt.NDArray[np.bool_], layouts: LayoutColumns, job: Job) -> Reason:
    example = layouts.row(int(broken.argmax()))
    count = f"{int(broken.sum())} of {len(layouts)} layouts, the first {example}"
    message = f"{count}: {rule.message(example, job)}"
    return Reason(rule=rule.name, field=rule.field, message=message, nearest=rule.nearest(example, job))


_Choices: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of the choice fields, one row for each combination."""


def _choices(job: Job, space: SearchSpace) -> _Choices:
    """Every combination that the space names; what means nothing beside the other choices has its default."""
    combinations = zip(*product(*(_named(space, name) for name in _CHOICE_FIELDS)), strict=True)
    choices = {name: as_column(name, values) for name, values in zip(_CHOICE_FIELDS, combinations, strict=True)}
    for rule in _named_without_default(space):
        idle = _broken_alone(rule, choices, job)
        if idle is not None:
            choices[rule.field] = _defaulted(choices[rule.field], idle, rule.field, space)
    return choices


def _possible(choices: _Choices, job: Job, rules: Sequence[Rule]) -> _Choices:
    """The combinations that some degrees may make a legal layout: those that break no rule of choices alone."""
    possible = np.ones(_length(choices), dtype=np.bool_)
    for rule in rules:
        broken = _broken_alone(rule, choices, job)
        if broken is not None:
            possible &= ~broken
    return {name: column[possible] for name, column in choices.items()}


def _broken_alone(rule: Rule, choices: _Choices, job: Job) -> npt.NDArray[np.bool_] | None:
    """Which combinations break the rule; None where it reads a degree, which they do not have."""
    if not fields_read(rule, job) <= choices.keys():
        return None
    verdict = rule.broken(cast("Layout", SimpleNamespace(**choices)), job)
    return np.broadcast_to(np.asarray(verdict, dtype=np.bool_), (_length(choices),))


def _settle(layouts: _Crossing, job: Job, space: SearchSpace) -> None:
    """Put defaults where a choice means nothing beside the degrees."""
    for rule in _named_without_default(space):
        idle = broken_rows(layouts, job, [rule])
        layouts.put(rule.field, _defaulted(getattr(layouts, rule.field), idle, rule.field, space))


def _named_without_default(space: SearchSpace) -> list[Rule]:
    """Rules of what means nothing, for fields whose default the space does not name; if named, it is there anyway."""
    return [rule for rule in IDLE_RULES if getattr(_DEFAULT, rule.field) not in _named(space, rule.field)]


def _defaulted(
    column: npt.NDArray[Any], idle: npt.NDArray[np.bool_], name: str, space: SearchSpace
) -> npt.NDArray[Any]:
    """The default in place of the first value named; of the others it would be the same layout again."""
    first, *_ = _named(space, name)
    settled = np.where(idle & (column == first), getattr(_DEFAULT, name), column)
    return settled.astype(column.dtype, copy=False)


def _named(space: SearchSpace, name: str) -> tuple[int, ...]:
    """The values of an axis that always names some."""
    return space.values(name) or ()


def _length(choices: _Choices) -> int:
    return len(choices[_CHOICE_FIELDS[0]])


class _Crossing(LayoutColumns):
    """Each row of the degrees with each combination of choices; a column is there once somebody reads it.

    Rules read few columns, and of most rows nothing else is needed: that they are illegal.
    """

    def __init__(self, degrees: LayoutColumns, choices: _Choices) -> None:
        self.__dict__.update(_degrees=degrees, _choices=choices, _changed={})

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        degrees, choices = self.__dict__["_degrees"], self.__dict__["_choices"]
        if name in choices:
            column = np.tile(choices[name], len(degrees))
        elif name in LAYOUT_FIELDS:
            column = np.repeat(getattr(degrees, name), _length(choices))
        else:
            raise AttributeError(name)
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(self.__dict__["_degrees"]) * _length(self.__dict__["_choices"])

    def put(self, name: str, column: npt.NDArray[Any]) -> None:
        """Change a column."""
        self.__dict__[name] = self.__dict__["_changed"][name] = column

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """Every column of some rows."""
        rows = np.arange(len(self))[index]
        degrees, choices, changed = (self.__dict__[name] for name in ("_degrees", "_choices", "_changed"))
        of_degrees, of_choices = np.divmod(rows, max(1, _length(choices)))
        columns = {name: getattr(degrees, name).take(of_degrees) for name in _DEGREE_FIELDS}
        columns |= {name: column.take(of_choices) for name, column in choices.items()}
        return LayoutColumns(**columns | {name: column[rows] for name, column in changed.items()})


def _degrees(job: Job, space: SearchSpace) -> LayoutColumns:
    """Candidate splits of the ranks; the choices are filled in with defaults that no degree rule reads."""
    rows = list(dict.fromkeys(_splits(job, space)))
    columns = {name: [getattr(_DEFAULT, name)] * len(rows) for name in _CHOICE_FIELDS}
    columns |= {name: [row[index] for row in rows] for index, name in enumerate(_DEGREE_FIELDS)}
    return LayoutColumns.from_values(columns)


def _splits(job: Job, space: SearchSpace) -> Iterator[tuple[int, ...]]:
    """One tuple per candidate, in the order of ``_DEGREE_FIELDS``."""
    world_size = job.cluster.world_size
    for tensor, pipeline, context in _model_splits(world_size, space):
        data = max(1, world_size // (tensor * pipeline * context))
        batches = space.values("micro_batch_size") or _micro_batches(
            job.workload.global_batch_size // data, context, space
        )
        num_experts = job.model.experts.num_experts if job.model.experts else 1
        experts = space.values("expert_parallel_degree") or divisors(num_experts)
        shards = space.values("data_parallel_shard_degree") or _shard_degrees(data, tensor * context, job)
        pipelines = tuple(_pipelines(pipeline, job, space))
        for shard, expert, (schedule, virtual, *less), batch in product(shards, experts, pipelines, batches):
            yield max(1, data // shard), shard, tensor, context, expert, pipeline, virtual, batch, schedule, *less


def _model_splits(world_size: int, space: SearchSpace) -> list[tuple[int, int, int]]:
    """Tensor, pipeline and context degrees whose product divides the ranks; if none does, all, for a rule to refuse."""
    every = divisors(world_size)
    splits = list(
        product(
            space.values("tensor_parallel_degree") or every,
            space.values("pipeline_parallel_degree") or every,
            space.values("context_parallel_degree") or every,
        )
    )
    return [split for split in splits if world_size % prod(split) == 0] or splits


def _shard_degrees(data: int, inner: int, job: Job) -> tuple[int, ...]:
    """Replicated, sharded inside a node, sharded over all; ``inner`` ranks lie between two data-parallel ones."""
    inside_node = gcd(data, max(1, job.cluster.accelerators_per_domain // inner))
    return tuple(sorted({1, inside_node, data}))


def _pipelines(pipeline: int, job: Job, space: SearchSpace) -> Iterator[tuple[PipelineSchedule, int, int, int]]:
    """Schedule, stages per rank, and layers that the first and the last stage have less."""
    if pipeline == 1:
        yield PipelineSchedule.ONE_F_ONE_B, 1, 0, 0
        return
    schedules = cast("tuple[PipelineSchedule, ...]", _named(space, "pipeline_schedule"))
    dealt = set()
    for schedule, less in product(schedules, _ends(space)):
        share = (job.model.num_layers + sum(less)) // pipeline
        for virtual in space.values("virtual_stages_per_rank") or _virtual_stages(schedule, share):
            if virtual > 1:  # rules ask how the sizes came about
                yield schedule, virtual, *less
                continue
            found = schedule, stage_sizes(job.model.num_layers, pipeline, *less)
            if found not in dealt:
                yield schedule, virtual, *less
            dealt.add(found)


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
