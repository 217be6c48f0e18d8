"""PlanStore: plans that were asked for, their answers, and who computes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from autotuner.core.run import HeldLease, StoredPlan


class PlanStore(Protocol):
    """Plans; every method is one transaction, as in ``Store``.

    What a process writes that computes one names its ``owner``, and raises ``LeaseLost`` where another has taken the
    plan over, or has answered it.
    """

    def add(self, plan_id: str, question: str, *, now: float) -> None:
        """Store a question, unless it is stored."""
        ...

    def get(self, plan_id: str) -> StoredPlan:
        """As it stands now."""
        ...

    # ------------------------------------------------------------------ a computing process's
    def held(self) -> Sequence[HeldLease]:
        """The lease of every plan that somebody computes, as ``Store.held_sweeps`` has them of sweeps."""
        ...

    def claim(
        self, plan_id: str, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease] = ()
    ) -> StoredPlan:
        """The plan as it stands then: the owner's if it has no answer, and nobody else holds it but by ``lapsed``."""
        ...

    def tell(self, plan_id: str, num_done: int, num_known: int, *, owner: str, now: float, lease_s: float) -> None:
        """How far it is, which is a sign of life."""
        ...

    def answer(self, plan_id: str, answer: str, *, owner: str, now: float) -> None:
        """Store the answer; nobody holds the plan then."""
        ...

    def release(self, plan_id: str, *, owner: str, now: float) -> None:
        """Give the plan back unanswered: anybody may claim it at once."""
        ...
