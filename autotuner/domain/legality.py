"""Which layouts can run, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotuner.domain.choice_rules import CHOICE_RULES
from autotuner.domain.degree_rules import DEGREE_RULES
from autotuner.domain.layout import Layout
from autotuner.domain.rule import Job, Layouts, Reason, Rule
from autotuner.domain.trial_rules import TRIAL_RULES

__all__ = ["RULES", "TRIAL_RULES", "Job", "Reason", "Rule", "illegal", "reasons"]

RULES: tuple[Rule, ...] = (*DEGREE_RULES, *CHOICE_RULES)
"""Physics and arithmetic: a layout that breaks one cannot run anywhere on its cluster."""


def reasons(layout: Layout, job: Job, rules: Iterable[Rule] | None = None) -> tuple[Reason, ...]:
    """Every rule that the layout breaks; empty for a legal one."""
    return tuple(
        Reason(rule=r.name, field=r.field, message=r.message(layout, job), nearest=r.nearest(layout, job))
        for r in (RULES if rules is None else rules)
        if r.broken(layout, job)
    )


def illegal(layouts: Layouts, job: Job, rules: Iterable[Rule]) -> Any:
    """Whether any of the rules is broken: a bool for one layout, a bool column for columns."""
    verdict: Any = False
    for rule in rules:
        verdict = verdict | rule.broken(layouts, job)
    return verdict
