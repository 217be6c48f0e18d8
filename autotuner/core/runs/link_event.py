"""LinkEvent: what a running pipeline found out about its links and ranks, and what it did about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LinkEvent", "LinkEventKind"]


class LinkEventKind(StrEnum):
    """What happened."""

    LINK_SLOW = "link_slow"  # a link between stages delays what is sent
    LINK_RECOVERED = "link_recovered"
    LINK_DEAD = "link_dead"  # nothing passes any more; delegates bridge it
    RANK_SLOW = "rank_slow"  # a stage computes longer than it did: no link is at fault
    RANK_RECOVERED = "rank_recovered"
    REPLANNED = "replanned"  # all ranks follow another plan from the next step on


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvent:
    """One finding or re-plan, at one step.

    Attributes:
        step: Of the trial, as its step reports count.
        stages: Pipeline ranks at both ends of a link, or the one that is slow; empty of a re-plan.
        delay_s: One-way delay that was found; 0 of a recovery.
        warm_up: Forwards per pipeline rank before its first backward, after a re-plan.
        delegated: Whether sends are delegated, after a re-plan.
        cost_s: Seconds that it took out of a step.
    """

    step: int
    kind: LinkEventKind
    stages: tuple[int, ...] = ()
    delay_s: float = 0.0
    warm_up: tuple[int, ...] = ()
    delegated: bool = False
    cost_s: float = 0.0
