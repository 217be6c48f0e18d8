"""The smallest layout that each rule of the trial job alone refuses, where the axes have one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from autotuner.domain.legality import RULES, TRIAL_RULES, Rule
from tests.oracle.axes import AXES
from tests.oracle.covering import MAX_RANKS, Case, job_of

__all__ = ["witness"]


def witness(rule: Rule) -> Case | None:
    """A layout that breaks this rule and no other."""
    return next((case for case in _candidates() if _broken(case) == [rule.name]), None)


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
