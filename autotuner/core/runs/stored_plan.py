"""StoredPlan: a plan as it is stored, and who computes it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoredPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """What was asked, how far it is computed, and what it says.

    Attributes:
        id: Content key of the question and of what it is answered by.
        question: Document of a ``search.planning.request.PlanRequest``.
        created_at: Epoch seconds at which it was first asked for, as is the next.
        computed_at: When the answer was there; None before.
        answer: Document of a ``search.planning.plan.Plan``; None before.
        num_done: Pieces of work that are done.
        num_known: Pieces of work that there are as far as is known.
        owner: The process that computes it; None where none does.
        lease_until: Epoch seconds until which the owner means to keep it, by its own clock.
        renewals: How often a process has said that it computes it, so that others see whether one still does.
        lease_s: For how long the owner may be silent before another takes over.
    """

    id: str
    question: str
    created_at: float
    computed_at: float | None = None
    answer: str | None = None
    num_done: int = 0
    num_known: int = 0
    owner: str | None = None
    lease_until: float | None = None
    renewals: int = 0
    lease_s: float | None = None
