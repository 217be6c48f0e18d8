"""A plan as it is asked for again and again: how far it is computed, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.run import Run
from autotuner.core.workload import Workload
from autotuner.search.planning.goal import Failures, Goal
from autotuner.search.planning.plan import Plan
from autotuner.search.planning.request import ChangePrices, PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan, and how far it is computed.

    Attributes:
        id: The same for the same question, as long as nothing changes that it is answered by.
        computed_at: Epoch seconds; null until then.
        num_done: Pieces of work that are done.
        num_known: Pieces of work that there are as far as is known; more may come.
        workload: Of one optimizer step.
        answer: Null until it is computed.
    """

    id: str
    computed_at: float | None
    num_done: int
    num_known: int
    goal: Goal
    workload: Workload
    failures: Failures
    change_prices: ChangePrices
    answer: Plan | None

    @classmethod
    def of(cls, run: Run) -> Self:
        """The plan as it stands."""
        request: PlanRequest = run.request
        return cls(
            id=run.id,
            computed_at=run.finished_at,
            num_done=run.progress.num_done,
            num_known=run.progress.num_known,
            goal=request.goal,
            workload=request.workload,
            failures=request.failures,
            change_prices=request.change_prices,
            answer=run.result,
        )
