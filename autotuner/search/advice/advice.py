"""What a table of predictions leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.job import Job
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.rule import Rule
from autotuner.core.space import SearchSpace
from autotuner.search.advice.shortfall import Shortfall, shortfall
from autotuner.search.advice.unsearched import Unsearched, unsearched
from autotuner.search.ranking import PredictionTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One of both: where layouts fit there is no shortfall, and where none does nothing is one step from the best.

    Attributes:
        not_searched: What is expected to pay beyond the space, what saves most first.
        shortfall: What is missing, and what would make a layout fit.
    """

    not_searched: tuple[Unsearched, ...] = ()
    shortfall: Shortfall | None = None


def advice(job: Job, space: SearchSpace, table: PredictionTable, rules: Sequence[Rule] = RULES) -> Advice:
    """What the table of the job's space leaves open; layouts that break a rule are not advised beside others."""
    if table.nearest is not None:
        return Advice(shortfall=shortfall(table.nearest, job, space))
    return Advice(not_searched=unsearched(table.rows[0], job, space, rules)) if table.rows else Advice()
