"""Trials, and their ranking."""

from __future__ import annotations

from dataclasses import dataclass

from api.schemas.predictions import Predicted
from autotuner.domain.layout import Layout
from autotuner.domain.trial import Measurement, StepReport, TrialFailure, TrialState

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetail(TrialView):
    """A trial with the steps of its running or last attempt."""

    steps: tuple[StepReport, ...]


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
