"""The smallest layout that each rule of the trial job alone refuses, where the axes have one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations, product

from autotuner.core.rules.legality import RULES
from autotuner.core.rules.rule import Rule
from autotuner.core.rules.trial_job import TRIAL_RULES
from tests.oracle.axes import AXES
from tests.oracle.covering import MAX_RANKS, Case, job_of

_OF_MANY_VALUES = {
    "trial-gathers-recomputed-experts-once": ("parameter shards, reshard", "cp2 ring", "ep2", "1f1b", "selective"),
    "trial-compiles-experts-with-their-layer": ("parameter shards", "cp2 ring", "ep2", "compiled"),
}
"""What it takes to break a rule, where that is more than all candidates can be asked for."""


def witness(rule: Rule) -> Case | None:
    """A layout that breaks this rule and no other."""
    labels = _OF_MANY_VALUES.get(rule.name)
    candidates = [_of_labels(labels)] if labels else _candidates()
    return next((case for case in candidates if _broken(case) == [rule.name]), None)


def _of_labels(labels: Collection[str]) -> Case:
    return Case.of([value for axis in AXES.values() for value in axis if value.label in labels])


def _candidates() -> Iterator[Case]:
    """Up to three values that are not plain, few before many."""
    for num_values in (1, 2, 3):
        for axes in combinations(AXES.values(), num_values):
            for values in product(*(axis[1:] for axis in axes)):
                case = Case.of(values)
                if case.layout.world_size <= MAX_RANKS:
                    yield case


def _broken(case: Case) -> list[str]:
    job = job_of(case)
    return [rule.name for rule in (*RULES, *TRIAL_RULES) if rule.broken(case.layout, job)]
