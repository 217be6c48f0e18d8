"""Trials, and their ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from api.documents import extended
from api.schemas.predictions import Predicted
from autotuner.domain.layout import Layout
from autotuner.domain.trial import Measurement, StepReport, Trial, TrialFailure, TrialState
from autotuner.ports import Page

__all__ = ["RankedTrial", "RankingPage", "TrialDetail", "TrialPage", "TrialView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One layout of a sweep: what was predicted, what was measured, or why it died.

    Attributes:
        number: Counts from 0 inside its sweep.
        label: The layout in short.
        attempts: How often it was started; above 1 after an interruption.
        started_at: Epoch seconds.
        finished_at: Epoch seconds.
        measured: Null unless the trial is complete.
        failure: Null unless the trial failed.
    """

    id: str
    sweep_id: str
    number: int
    state: TrialState
    label: str
    layout: Layout
    attempts: int
    started_at: float | None
    finished_at: float | None
    predicted: Predicted
    measured: Measurement | None
    failure: TrialFailure | None

    @classmethod
    def of(cls, trial: Trial) -> TrialView:
        """The trial without its steps."""
        return TrialView(
            id=trial.id,
            sweep_id=trial.sweep_id,
            number=trial.number,
            state=trial.state,
            label=str(trial.layout),
            layout=trial.layout,
            attempts=trial.attempts,
            started_at=trial.started_at,
            finished_at=trial.finished_at,
            predicted=Predicted.of(trial.prediction),
            measured=trial.measurement,
            failure=trial.failure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetail(TrialView):
    """A trial with the steps of its running or last attempt."""

    steps: tuple[StepReport, ...]

    @classmethod
    def of(cls, trial: Trial) -> TrialDetail:
        """The trial with its steps."""
        return extended(cls, TrialView.of(trial), steps=trial.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPage:
    """Trials by number.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[TrialView, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, trials: Sequence[Trial], total: int, page: Page) -> Self:
        """The trials of one page."""
        return cls(items=tuple(TrialView.of(t) for t in trials), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTrial(TrialView):
    """A complete trial and its place.

    Attributes:
        rank: From 1, by measured MFU.
    """

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPage:
    """Complete trials by measured MFU, highest first.

    Attributes:
        total: How many match, on all pages.
    """

    items: tuple[RankedTrial, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, trials: Sequence[Trial], total: int, page: Page) -> Self:
        """The trials of one page with their places."""
        ranked = (extended(RankedTrial, TrialView.of(t), rank=rank) for rank, t in enumerate(trials, page.offset + 1))
        return cls(items=tuple(ranked), total=total, limit=page.limit, offset=page.offset)
