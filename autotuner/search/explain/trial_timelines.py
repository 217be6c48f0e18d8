"""A trial's step as a picture of time, as it is predicted and as its ranks recorded it."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.rules.legality import require_legal
from autotuner.core.sweep import SweepRequest
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial import Trial
from autotuner.search.explain.rank_groups import RankGroups, rank_groups
from autotuner.search.explain.timeline import PredictedTimeline, predicted_timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTimelines:
    """A step on both sides.

    Attributes:
        is_small: It is that of the trial on fewer ranks that stands for the layout, not of the layout.
        predicted: By the schedule simulator, from what today's cost model says of each pass.
        measured: Recorded on a profiled step; None where none was, and once it was thinned away.
    """

    is_small: bool
    predicted: PredictedTimeline
    measured: StepTimeline | None


def trial_timelines(trial: Trial, request: SweepRequest) -> TrialTimelines:
    """The timelines of what ran as the trial, or would have.

    Args:
        trial: As the store has it, with its timeline; it need not have run.
        request: Of its sweep.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout.
    """
    require_legal(trial.layout, request.legal_job)
    job = request.trial_job if trial.scaled is None else request.job_of(trial.scaled)
    return TrialTimelines(
        is_small=trial.scaled is not None,
        predicted=predicted_timeline(trial.ran, job),
        measured=trial.measurement.timeline if trial.measurement else None,
    )


def trial_rank_groups(trial: Trial, request: SweepRequest, rank: int) -> RankGroups:
    """The groups of a rank of what ran as the trial, or would have.

    Raises:
        InvalidInput: A rule that is younger than the trial forbids its layout, or there is no such rank.
    """
    require_legal(trial.layout, request.legal_job)
    job = request.trial_job if trial.scaled is None else request.job_of(trial.scaled)
    return rank_groups(trial.ran, job, rank)
