"""Sweeps, and how far they have come."""

from __future__ import annotations

from dataclasses import dataclass

from api.schemas.trials import TrialView
from autotuner.domain.sweep import Budget, StopReason, SweepRequest, SweepState

__all__ = ["Progress", "SweepDetail", "SweepPage", "SweepSummary", "TrialCounts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCounts:
    """Trials of a sweep by state."""

    queued: int = 0
    running: int = 0
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ran(self) -> int:
        """Trials that came to an end, however: what the trial budget counts."""
        return self.complete + self.pruned + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much of each budget is spent.

    Attributes:
        fraction: The budget nearest its end, 0..1; 1 for a finished sweep.
        num_trials: Trials that ran.
        elapsed_s: Since the sweep started, until now or its end.
        accelerator_hours: Sum over trials of run time x ranks.
    """

    fraction: float
    num_trials: int
    elapsed_s: float
    accelerator_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep as a line of a list.

    Attributes:
        model: Its name.
        cluster: Its name.
        created_at: Epoch seconds, as are the next two.
        cancel_requested: The end was asked for; a running trial is being stopped.
        stop_reason: Null until the sweep is finished.
        stop_detail: The reason with its numbers, as a sentence.
        trials: How many there are in each state.
        best_measured_mfu: Of the best complete trial; null until there is one.
    """

    id: str
    name: str
    state: SweepState
    model: str
    cluster: str
    created_at: float
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    stop_reason: StopReason | None
    stop_detail: str
    budget: Budget
    progress: Progress
    trials: TrialCounts
    best_measured_mfu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDetail(SweepSummary):
    """A sweep with everything that was asked of it.

    Attributes:
        request: As it runs: every name resolved, every default filled in.
        best: The complete trial with the highest measured MFU; null until there is one.
    """

    request: SweepRequest
    best: TrialView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPage:
    """Sweeps, newest first.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[SweepSummary, ...]
    total: int
    limit: int
    offset: int
