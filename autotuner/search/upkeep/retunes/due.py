"""What a retune's clock asks for now: which due time a run stands for, which it replaces, and which is skipped."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, takewhile

from autotuner.core.upkeep import Retune, Trigger
from autotuner.search.upkeep.retunes.cron import Cron

_LATE_S = 90.0
"""After so long a run was not started by the clock but found to be due: a loop looks every few seconds."""

_MOST_MISSED = 10_000
"""Counted no further: a week of every minute. A run that stands for more says this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """A due time that has come, as one row of the store.

    Attributes:
        expected_due_at: What the retune's next due time must still be, for nobody else to have written the row.
        due_at: The due time; the last of them where several were missed.
        next_due_at: The retune's next due time from now on: always later than now.
        num_missed: Due times before ``due_at`` that nobody was there for.
        skipped: No sweep is started, since the run before is not finished.
    """

    expected_due_at: float
    due_at: float
    next_due_at: float
    trigger: Trigger
    num_missed: int = 0
    skipped: bool = False


def first_due_at(cron: Cron, *, now: float) -> float:
    """When a retune that is stored, or goes on, at ``now`` is first due: what came before is not caught up."""
    return cron.next_due_at(after=now)


def due_run(retune: Retune, *, now: float, is_running: bool) -> DueRun | None:
    """The run that is due, if one is; one stands for all that were missed.

    Args:
        retune: As it is stored.
        now: Epoch seconds.
        is_running: Whether the run before it is not finished.
    """
    first = retune.next_due_at
    if first is None or first > now:
        return None
    cron = Cron(expression=retune.request.cron, time_zone=retune.request.time_zone)
    later = list(islice(takewhile(lambda at: at <= now, cron.due_times(after=first)), _MOST_MISSED))
    due_at = later[-1] if later else first
    is_late = bool(later) or now - due_at > _LATE_S
    return DueRun(
        expected_due_at=first,
        due_at=due_at,
        next_due_at=cron.next_due_at(after=now),
        trigger=Trigger.CAUGHT_UP if is_late else Trigger.CRON,
        num_missed=len(later),
        skipped=is_running,
    )
