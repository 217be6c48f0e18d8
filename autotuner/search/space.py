"""Every legal layout of a job, as columns.

Two small tables are crossed: the *degrees* (how the ranks are split, by Python loops over a few thousand
combinations) and the *choices* (switches that any split may take). A rule of ``legality`` that names a degree is
judged on the degrees alone, one that reads no degree on the choices alone, before the crossing, so the large table is
built almost without illegal rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from autotuner.core.columns import LayoutColumns, as_column, broken_rows, concatenate
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import IDLE_RULES, RULES
from autotuner.core.rules.rule import Reason, Rule, fields_read
from autotuner.core.space import SearchSpace
from autotuner.costmodel.predict import CHUNK
from autotuner.search.splits import SPLIT_FIELDS, SpaceTooLarge, splits_of

_CHOICE_FIELDS = tuple(name for name, one in OPTIONS.items() if not one.is_split)
_DEFAULT = Layout()

MOST_REASONS = 3
"""Of an empty space; the rules that remove most come first, the others rarely matter."""

_BLOCK = 1 << 16
"""Rows of the crossing judged at once; most of them may be illegal, and all at once would fill the memory."""

MAX_CANDIDATES = 10_000_000
"""Rows of the whole crossing: a processor judges and predicts about a million of them in a second."""

_MAX_COMBINATIONS = 1 << 20
"""Of choices alone: they are held at once."""

_MAX_EXPLAINED = 1 << 20
"""Rows of an empty crossing that are looked at for the rules that empty it."""


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

    Raises:
        SpaceTooLarge: More layouts than ``MAX_CANDIDATES`` would have to be judged.
    """
    chunks = list(legal_chunks(job, space, rules))
    return chunks[0] if len(chunks) == 1 else concatenate(chunks)


def legal_chunks(
    job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES, most: int = MAX_CANDIDATES
) -> Iterator[LayoutColumns]:
    """``legal_layouts`` in tables of ``CHUNK`` rows, one after the other; the last is shorter, and may be empty.

    Raises:
        SpaceTooLarge: More layouts than ``most`` would have to be judged; before the first.
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
    """The legal layouts of some degrees after the other."""
    degrees = splits_of(job, space)
    degrees = degrees.take(~broken_rows(degrees, job, [r for r in rules if r.field in SPLIT_FIELDS]))
    choice_rules = [rule for rule in rules if rule.field not in SPLIT_FIELDS]
    choices = _possible(combinations_of(job, space), job, choice_rules)
    if not _named_without_default(space):  # so that crossing changes no choice, and what was judged alone stays true
        choice_rules = [rule for rule in choice_rules if not fields_read(rule, job) <= choices.keys()]
    _require_few(len(degrees), _length(choices), space, most)
    for layouts in crossed(degrees, choices, job, space):
        yield layouts.take(np.flatnonzero(~broken_rows(layouts, job, choice_rules)))


def _require_few(num_splits: int, num_choices: int, space: SearchSpace, most: int) -> None:
    """Return if so many splits can be crossed with so many combinations of choices."""
    if num_splits * num_choices > most:
        rule = f"{num_splits} splits of the job x {num_choices} combinations of choices ({_longest(space)}) are more"
        rule = f"{rule} layouts than are judged; name fewer values"
        raise SpaceTooLarge("space", num_splits * num_choices, rule, most)


def _longest(space: SearchSpace) -> str:
    """The axes of choices with most values, for people."""
    counted = sorted(((len(_named(space, name)), name) for name in _CHOICE_FIELDS), reverse=True)
    return ", ".join(f"{count} of {name}" for count, name in counted[:3] if count > 1)


def crossed(degrees: LayoutColumns, choices: _Choices, job: Job, space: SearchSpace) -> Iterator[_Crossing]:
    """The crossing of all degrees with all choices, no more than ``_BLOCK`` rows at a time; at least one block."""
    num_choices = _length(choices)
    step = max(1, _BLOCK // max(1, num_choices))
    for start in range(0, max(1, len(degrees)), step):
        some = degrees.take(slice(start, start + step))
        for first in range(0, max(1, num_choices), _BLOCK):
            part = {name: column[first : first + _BLOCK] for name, column in choices.items()}
            layouts = _Crossing(some, part)
            _settle(layouts, job, space)
            yield layouts


def empty_space(job: Job, space: SearchSpace, rules: Sequence[Rule], what: str) -> InvalidInput:
    """What to raise of a space without a layout, with the rules that remove most."""
    broken = explain_empty(job, space, rules)[:MOST_REASONS]
    return InvalidInput("space", "as given", f"{what}: " + "; ".join(reason.message for reason in broken))


def explain_empty(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> tuple[Reason, ...]:
    """Why the space holds no legal layout: each rule that removes some, the one that removes most first.

    The message says how many of the candidates break the rule and shows the first of them; a candidate may break
    several. Of very many candidates the first million are looked at. Empty when nothing is wrong.
    """
    space = space or SearchSpace()
    num_seen, removed = 0, [0] * len(rules)
    examples: dict[int, Layout] = {}
    for layouts in crossed(splits_of(job, space), combinations_of(job, space), job, space):
        for index, rule in enumerate(rules):
            broken = broken_rows(layouts, job, [rule])
            removed[index] += int(broken.sum())
            if broken.any() and index not in examples:
                examples[index] = layouts.row(int(broken.argmax()))
        num_seen += len(layouts)
        if num_seen >= _MAX_EXPLAINED:
            break
    order = sorted(examples, key=lambda index: (-removed[index], index))
    return tuple(_reason(rules[i], f"{removed[i]} of {num_seen} layouts", examples[i], job) for i in order)


def _reason(rule: Rule, count: str, example: Layout, job: Job) -> Reason:
    message = f"{count}, the first {example}: {rule.message(example, job)}"
    return Reason(rule=rule.name, field=rule.field, message=message, nearest=rule.nearest(example, job))


_Choices: TypeAlias = dict[str, npt.NDArray[Any]]
"""Columns of the choice fields, one row for each combination."""


def combinations_of(job: Job, space: SearchSpace) -> _Choices:
    """Every combination that the space names; what means nothing beside the other choices has its default.

    Raises:
        SpaceTooLarge: There are more than ``_MAX_COMBINATIONS``.
    """
    named = {name: _named(space, name) for name in _CHOICE_FIELDS}
    total = prod(len(values) for values in named.values())
    if total > _MAX_COMBINATIONS:
        what = f"combinations of choices ({_longest(space)}) are more than are looked at; name fewer values"
        raise SpaceTooLarge("space", total, what, _MAX_COMBINATIONS)
    choices, repeats = {}, total
    for name, values in named.items():
        repeats //= len(values)
        column = np.repeat(as_column(name, values), repeats)
        choices[name] = np.tile(column, total // len(column))
    for rule in _named_without_default(space):
        idle = broken_alone(rule, choices, job)
        if idle is not None:
            choices[rule.field] = _defaulted(choices[rule.field], idle, rule.field, space)
    return choices


def _possible(choices: _Choices, job: Job, rules: Sequence[Rule]) -> _Choices:
    """The combinations that some degrees may make a legal layout: those that break no rule of choices alone."""
    possible = np.ones(_length(choices), dtype=np.bool_)
    for rule in rules:
        broken = broken_alone(rule, choices, job)
        if broken is not None:
            possible &= ~broken
    return {name: column[possible] for name, column in choices.items()}


def broken_alone(rule: Rule, choices: _Choices, job: Job) -> npt.NDArray[np.bool_] | None:
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
        elif name in OPTIONS:
            column = np.repeat(getattr(degrees, name), _length(choices))
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, column)
        return column

    def __len__(self) -> int:
        return len(self.__dict__["_degrees"]) * _length(self.__dict__["_choices"])

    def put(self, name: str, column: npt.NDArray[Any]) -> None:
        """Change a column."""
        self.__dict__["_changed"][name] = column
        object.__setattr__(self, name, column)

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """Every column of some rows."""
        rows = np.arange(len(self))[index]
        degrees, choices, changed = (self.__dict__[name] for name in ("_degrees", "_choices", "_changed"))
        of_degrees, of_choices = np.divmod(rows, max(1, _length(choices)))
        columns = {name: getattr(degrees, name).take(of_degrees) for name in SPLIT_FIELDS}
        columns |= {name: column.take(of_choices) for name, column in choices.items()}
        return LayoutColumns(columns | {name: column[rows] for name, column in changed.items()})
