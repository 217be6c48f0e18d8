"""Sweeps, and how far they have come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from api.documents import extended
from api.schemas.trials import TrialView
from autotuner.domain.sweep import Budget, StopReason, Sweep, SweepRequest, SweepState
from autotuner.domain.trial import Trial
from autotuner.ports import Page, Store
from autotuner.search.sweeps.history import all_trials

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

    @classmethod
    def of(cls, sweep: Sweep, num_trials: int, accelerator_hours: float, now: float) -> Self:
        """What a sweep has spent."""
        elapsed_s = 0.0 if sweep.started_at is None else (sweep.finished_at or now) - sweep.started_at
        spent = _spent(sweep.request.budget, num_trials, elapsed_s, accelerator_hours)
        return cls(
            fraction=1.0 if sweep.state.finished else min(1.0, max(spent)),
            num_trials=num_trials,
            elapsed_s=elapsed_s,
            accelerator_hours=accelerator_hours,
        )


def _spent(budget: Budget, num_trials: int, elapsed_s: float, accelerator_hours: float) -> Iterator[float]:
    """How much of each limit is spent, 0..1 or more."""
    yield num_trials / budget.num_trials
    if budget.wall_clock_s is not None:
        yield elapsed_s / budget.wall_clock_s
    if budget.accelerator_hours is not None:
        yield accelerator_hours / budget.accelerator_hours


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

    @classmethod
    def of(cls, store: Store, sweep: Sweep, now: float) -> SweepSummary:
        """The sweep with how far it has come."""
        trials = tuple(all_trials(store, sweep.id))
        counts = TrialCounts(**Counter(trial.state.value for trial in trials))
        best = _best(store, sweep)
        hours = sum(trial.accelerator_hours(now) for trial in trials)
        return SweepSummary(
            id=sweep.id,
            name=sweep.request.name,
            state=sweep.state,
            model=sweep.request.job.model.name,
            cluster=sweep.request.job.cluster.name,
            created_at=sweep.created_at,
            started_at=sweep.started_at,
            finished_at=sweep.finished_at,
            cancel_requested=sweep.cancel_requested,
            stop_reason=sweep.stop_reason,
            stop_detail=sweep.stop_detail,
            budget=sweep.request.budget,
            progress=Progress.of(sweep, counts.ran, hours, now),
            trials=counts,
            best_measured_mfu=best.measurement.mfu if best and best.measurement else None,
        )


def _best(store: Store, sweep: Sweep) -> Trial | None:
    trials, _ = store.ranking(sweep.id, page=Page(limit=1))
    return trials[0] if trials else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDetail(SweepSummary):
    """A sweep with everything that was asked of it.

    Attributes:
        request: As it runs: every name resolved, every default filled in.
        best: The complete trial with the highest measured MFU; null until there is one.
    """

    request: SweepRequest
    best: TrialView | None

    @classmethod
    def of(cls, store: Store, sweep: Sweep, now: float) -> SweepDetail:
        """The sweep with its request and its best trial."""
        best = _best(store, sweep)
        summary = SweepSummary.of(store, sweep, now)
        return extended(cls, summary, request=sweep.request, best=TrialView.of(best) if best else None)


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

    @classmethod
    def of(cls, store: Store, state: SweepState | None, page: Page, now: float) -> Self:
        """The sweeps of one page."""
        sweeps, total = store.list_sweeps(state=state, page=page)
        items = tuple(SweepSummary.of(store, sweep, now) for sweep in sweeps)
        return cls(items=items, total=total, limit=page.limit, offset=page.offset)
