"""Where a sweep stands, and how one ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["StopReason", "SweepEnd", "SweepState"]


class SweepState(StrEnum):
    """Where a sweep stands."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """No further change will come unless somebody asks for more."""
        return self not in (SweepState.QUEUED, SweepState.RUNNING, SweepState.PAUSED)


class StopReason(StrEnum):
    """Why a sweep ended."""

    TRIAL_BUDGET = "trial_budget"
    TIME_BUDGET = "time_budget"
    ACCELERATOR_HOURS_BUDGET = "accelerator_hours_budget"
    SPACE_EXHAUSTED = "space_exhausted"
    NO_IMPROVEMENT = "no_improvement"
    NOTHING_TO_GAIN = "nothing_to_gain"
    COMPARED = "compared"  # of a challenged sweep
    ALL_TRIALS_FAIL = "all_trials_fail"
    CANNOT_RUN = "cannot_run"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd:
    """How a sweep ended: in which state, and why, as a word and as a sentence with its numbers."""

    state: SweepState
    reason: StopReason
    detail: str
