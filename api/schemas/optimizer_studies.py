"""Optimizer studies: what is asked, where each stands, its trials with their curves, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from autotuner.core.documents import extended
from autotuner.core.run import Run, RunState, Stop
from autotuner.core.study import (
    OptimizerCandidate,
    OptimizerStudyRequest,
    OptimizerTrial,
    TargetReached,
    front,
)
from autotuner.core.trial import TrialState
from autotuner.search.planning.optimizer_study import starts_of
from autotuner.service.build import App
from autotuner.store.options import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTrialView:
    """One candidate of a study, and how it trained."""

    id: str
    number: int
    state: TrialState
    """Complete: it came to the target, or used up its samples; ``reached`` says which."""
    label: str
    """The candidate in words."""
    candidate: OptimizerCandidate
    world_size: int
    """Ranks that it takes."""
    attempts: int
    """How often it was started; above 1 after an interruption."""
    is_on_front: bool
    """Whether no other came to the target both sooner and with fewer accelerator-hours."""
    reached: TargetReached | None
    """What it took to the target; null where it did not come there."""
    detail: str
    """How it ended, as a sentence without a full stop; empty before."""
    num_steps: int
    """Optimizer steps by now."""
    losses: tuple[float, ...]
    """One per step, each the mean over a batch that the model had not seen before."""
    smoothed_losses: tuple[float, ...]
    """The same over ``window_sequences`` sequences."""
    step_time_s: float
    """Median of the steps but the first."""
    accelerator_hours: float
    """What its steps took by now, on all of its ranks."""
    started_at: float | None
    """Epoch seconds, as is the next."""
    finished_at: float | None

    @classmethod
    def of(cls, trial: OptimizerTrial, *, window_sequences: int, is_on_front: bool) -> Self:
        """What a caller may know of the trial."""
        return extended(
            cls,
            trial,
            label=str(trial.candidate),
            is_on_front=is_on_front,
            num_steps=trial.curve.num_steps,
            losses=trial.curve.losses,
            smoothed_losses=trial.curve.smoothed(window_sequences),
            step_time_s=trial.curve.step_time_s,
            accelerator_hours=trial.accelerator_hours,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyView:
    """Where a study stands."""

    id: str
    name: str
    state: RunState
    detail: str
    """How it ended, as a sentence without a full stop; empty before."""
    model: str
    """Its name."""
    cluster: str
    """Its name."""
    label: str
    """The layout in short."""
    target_loss: float
    num_trials: int
    created_at: float
    """Epoch seconds, as are the next two."""
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    created_by: str
    """Name of the caller who asked for it; empty where nobody was asked who they are."""

    @classmethod
    def of(cls, study: Run) -> Self:
        """What a caller may know of the study."""
        request: OptimizerStudyRequest = study.request
        return extended(
            cls,
            study,
            request,
            model=request.job.model.name,
            cluster=request.job.cluster.name,
            label=str(request.layout),
            num_trials=request.budget.num_trials,
            cancel_requested=study.wanted is Stop.CANCEL,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyDetail(OptimizerStudyView):
    """A study with all that was asked of it, its trials by number, and the front."""

    request: OptimizerStudyRequest
    trials: tuple[OptimizerTrialView, ...]
    front: tuple[int, ...]
    """Numbers of the trials that no other beats both in time and in accelerator-hours, the fastest first."""
    refusals: tuple[str, ...]
    """What of the space cannot be tried, and why, as sentences without a full stop."""

    @classmethod
    def of_study(cls, app: App, study: Run) -> Self:
        """The study with its trials as they are stored now."""
        return cls.with_trials(study, app.store.optimizer_studies.trials(study.id))

    @classmethod
    def with_trials(cls, study: Run, trials: Sequence[OptimizerTrial]) -> Self:
        """The study with these trials."""
        best, window = [trial.number for trial in front(trials)], study.request.window_sequences
        return extended(
            cls,
            OptimizerStudyView.of(study),
            request=study.request,
            trials=tuple(
                OptimizerTrialView.of(trial, window_sequences=window, is_on_front=trial.number in best)
                for trial in trials
            ),
            front=tuple(best),
            refusals=starts_of(study.request).refusals,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyPage:
    """Optimizer studies, newest first."""

    items: tuple[OptimizerStudyView, ...]
    total: int
    """How many there are, on all pages; no more than 10,000 are counted behind this one."""
    limit: int
    offset: int

    @classmethod
    def of(cls, app: App, page: Page) -> Self:
        """The studies of one page."""
        studies, total = app.store.runs.list("study", page=page)
        items = tuple(OptimizerStudyView.of(study) for study in studies)
        return cls(items=items, total=total, limit=page.limit, offset=page.offset)
