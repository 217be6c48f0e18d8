"""What a layout that somebody chose by hand would do: whether it runs, how fast, and where its memory goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.rules.rule import Reason
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.search.explain.arranging import arranged, nearest_legal
from autotuner.search.explain.choosable import Choosable, choices_of
from autotuner.search.explain.explanation import Explanation, explain


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalLayout:
    """What is predicted of a layout that can run.

    Attributes:
        untried: Rules of our own trial job that it breaks: a sweep does not try it, other software may run it.
    """

    explanation: Explanation
    untried: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a layout would do.

    Attributes:
        layout: On all ranks of the cluster, without what means nothing beside its other choices.
        choices: Values of each option beside the others, and why some cannot be; by field.
        reasons: Every rule that it breaks; empty for one that can run.
        nearest: One that can run and differs little; None where it can itself, or a few steps find none.
        legal: None where it cannot run.
    """

    layout: Layout
    choices: Mapping[str, tuple[Choosable, ...]]
    reasons: tuple[Reason, ...]
    nearest: Layout | None
    legal: LegalLayout | None


def what_if(layout: Layout, job: Job) -> WhatIf:
    """The layout on all ranks of the job's cluster, judged and predicted."""
    layout = arranged(layout, job)
    broken = reasons(layout, job)
    return WhatIf(
        layout=layout,
        choices=choices_of(layout, job),
        reasons=broken,
        nearest=nearest_legal(layout, job) if broken else None,
        legal=None if broken else _legal(layout, job),
    )


def _legal(layout: Layout, job: Job) -> LegalLayout:
    return LegalLayout(explanation=explain(layout, job), untried=reasons(layout, job, TRIAL_RULES))
