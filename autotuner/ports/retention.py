"""RetentionStore: what is removed because of its age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedSweep:
    """A sweep that was thinned, and how much was removed of it."""

    sweep_id: str
    num_steps: int
    num_events: int


class RetentionStore(Protocol):
    """What is removed because of its age; every method is one transaction, as in ``Store``."""

    def thin_sweep(self, *, before: float, now: float) -> ThinnedSweep | None:
        """Thin the sweep that ended first, at ``before`` at the latest, of those not thinned since; None without one.

        Removed are the steps and timelines of its trials that were measured, and the events of steps, notes and jobs
        of all. What else was measured, how trials and the sweep began and ended, and steps of trials that were ended
        early, all of which later sweeps learn from, stay.
        """
        ...

    def prune_announcements(self, *, before: float) -> int:
        """Remove some announcements told before then, with their deliveries; how many, 0 when there are no more.

        One of which a delivery is pending stays.
        """
        ...

    def prune_plans(self, *, before: float) -> int:
        """Remove some plans that were first asked for before then; how many, 0 when there are no more."""
        ...

    def prune_audit(self, *, before: float) -> int:
        """Remove some entries of the audit log from before then; how many, 0 when there are no more."""
        ...
