"""Elimination: each illegal layout of a space is counted once, under the first rule that it breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from autotuner.core.columns import Booleans, LayoutColumns, broken_rows
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import IDLE_RULES, RULES
from autotuner.core.rules.rule import Reason, Rule, fields_read
from autotuner.core.space import SearchSpace
from autotuner.search.space.legal import (
    SPLIT_FIELDS,
    broken_alone,
    combinations_of,
    crossings,
    length_of,
    named_without_default,
    splits_of,
)

MAX_SIEVED = 1 << 21
"""Largest number of candidate layouts for which rules are applied one by one, which takes two seconds on one core."""


MOST_REASONS = 3
"""Largest number of reasons that are shown for an empty space. Rules that remove most layouts come first, and the
others rarely matter."""

_MAX_EXPLAINED = 1 << 20
"""Largest number of candidate layouts of an empty space that are checked to find the rules that empty it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """The number of layouts that one rule removes from a search space, and why it removes the first of them."""

    rule: str
    """Name of the rule."""
    field: str
    """Field to change: a field of the layout, or the path of a field of the job."""
    num_layouts: int
    """Number of layouts that break this rule and none of the rules before it."""
    message: str
    """Reason why the first of these layouts cannot run, as a sentence with its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieved:
    """The number of candidate layouts in a search space, how many of them each rule removes, and how many stay."""

    num_candidates: int
    """Number of different layouts that the values of the space make. Layouts that differ only in an option without
    effect count as one layout."""
    num_legal: int
    """Number of layouts that keep every rule: ``num_candidates`` minus all that the rules remove."""
    falls: tuple[Fall, ...]
    """Layouts that each rule removes; the rule that removes most comes first."""


def eliminate(job: Job, space: SearchSpace, rules: Sequence[Rule] = RULES) -> Sieved | None:
    """Count how many layouts each rule removes from a space. A layout counts only for the first rule that it breaks.

    Rules are checked in this order: rules about parallel degrees alone, rules about other options alone, then rules
    about both. The result is None if the space is too large to be checked rule by rule.

    Raises:
        SpaceTooLarge: The space is too large to be enumerated at all.
    """
    sieve = _Sieve(job, space)
    ordered = sorted(rules, key=lambda rule: rule not in IDLE_RULES)
    mixed = [rule for rule in ordered if not sieve.judges_alone(rule)]
    if not sieve.judge_crossing(mixed):
        return None
    falls = tuple(sorted(sieve.falls.values(), key=lambda fall: -fall.num_layouts))
    num_fallen = sum(fall.num_layouts for fall in falls)
    return Sieved(num_candidates=sieve.num_legal + num_fallen, num_legal=sieve.num_legal, falls=falls)


class _Sieve:
    """The degrees and options that are left, and the numbers of removed layouts."""

    def __init__(self, job: Job, space: SearchSpace) -> None:
        self._job, self._space = job, space
        self._degrees = splits_of(job, space)
        self._choices = combinations_of(job, space)
        self.falls: dict[str, Fall] = {}
        self.num_legal = 0

    def judges_alone(self, rule: Rule) -> bool:
        """Remove layouts that break a rule, if the rule reads only degrees or only options.

        Return True if the rule was applied.
        """
        read = fields_read(rule, self._job)
        if read <= set(SPLIT_FIELDS):
            broken = broken_rows(self._degrees, self._job, [rule])
            self._count(rule, int(broken.sum()) * length_of(self._choices), self._degrees, broken)
            self._degrees = self._degrees.take(~broken)
            return True
        if any(one.field in read for one in named_without_default(self._space)):
            return False  # with some degrees, an option that the rule reads has another value
        alone = broken_alone(rule, self._choices, self._job)
        if alone is None:
            return False
        self._count(rule, int(alone.sum()) * len(self._degrees), self._choices, alone)
        self._choices = {name: column[~alone] for name, column in self._choices.items()}
        return True

    def judge_crossing(self, rules: Sequence[Rule]) -> bool:
        """Remove layouts that break the other rules.

        Return False if there are too many combinations.
        """
        if len(self._degrees) * length_of(self._choices) > MAX_SIEVED:
            return False
        for layouts in crossings(self._degrees, self._choices, self._job, self._space):
            left = np.ones(len(layouts), dtype=np.bool_)
            for rule in rules:
                broken = left & broken_rows(layouts, self._job, [rule])
                self._count(rule, int(broken.sum()), layouts, broken)
                left &= ~broken
            self.num_legal += int(left.sum())
        return True

    def _count(self, rule: Rule, count: int, table: LayoutColumns | Mapping[str, Any], broken: Booleans) -> None:
        if not count or rule.is_idle:
            return
        known = self.falls.get(rule.name)
        if known is None:
            message = rule.message(_row(table, int(broken.argmax())), self._job)
            known = Fall(rule=rule.name, field=rule.field, num_layouts=0, message=message)
        self.falls[rule.name] = replace(known, num_layouts=known.num_layouts + count)


def _row(table: LayoutColumns | Mapping[str, Any], row: int) -> Layout:
    if isinstance(table, LayoutColumns):
        return table.row(row)
    values = {name: OPTIONS[name].value_of(int(column[row])) for name, column in table.items()}
    return replace(Layout(), **cast("dict[str, Any]", values))


# ---------------------------------------------------------------- an empty space
def empty_space(job: Job, space: SearchSpace, rules: Sequence[Rule], what: str) -> InvalidInput:
    """Return the error to raise for a space without a layout. It names the rules that remove the most layouts.

    Args:
        job: The job.
        space: The search space.
        rules: Rules that layouts must keep.
        what: First words of the error message, such as "holds no legal layout".
    """
    broken = explain_empty(job, space, rules)[:MOST_REASONS]
    return InvalidInput("space", "as given", f"{what}: " + "; ".join(reason.message for reason in broken))


def explain_empty(job: Job, space: SearchSpace | None = None, rules: Sequence[Rule] = RULES) -> tuple[Reason, ...]:
    """Return the reasons why a space has no legal layout: the broken rules, the most frequent one first.

    Each message says how many candidate layouts break the rule, and shows the first of them. A candidate may break
    several rules. The function checks at most about a million candidates. The result is empty if no candidate breaks a
    rule.
    """
    space = space or SearchSpace()
    num_seen, removed = 0, [0] * len(rules)
    examples: dict[int, Layout] = {}
    for layouts in crossings(splits_of(job, space), combinations_of(job, space), job, space):
        for index, rule in enumerate(rules):
            broken = broken_rows(layouts, job, [rule])
            removed[index] += int(broken.sum())
            if broken.any() and index not in examples:
                examples[index] = layouts.row(int(broken.argmax()))
        num_seen += len(layouts)
        if num_seen >= _MAX_EXPLAINED:
            break
    found = []
    for index in sorted(examples, key=lambda index: (-removed[index], index)):
        rule, example = rules[index], examples[index]
        message = (
            f"{removed[index]} of {num_seen} layouts are excluded, such as {example}: {rule.message(example, job)}"
        )
        found.append(Reason(rule=rule.name, field=rule.field, message=message, nearest=rule.nearest(example, job)))
    return tuple(found)
