"""OptimizerTrial: one candidate of a study trained towards the target, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.runs.engine_job import EngineJob
from autotuner.core.runs.trial import TrialState
from autotuner.core.studies.curve import LossCurve
from autotuner.core.studies.space import Candidate

__all__ = ["OptimizerTrial", "TargetReached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """What it took a candidate to come to the target loss.

    Attributes:
        num_samples: Sequences that it saw.
        time_s: Steps times the median of a step's time: without the start, and without the first step's allocations.
        accelerator_hours: That time on all of its ranks.
        cost: Of these at the cluster's price; None where it has none.
    """

    num_steps: int
    num_samples: int
    step_time_s: float
    time_s: float
    accelerator_hours: float
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTrial:
    """A trial of a study as it is stored.

    Attributes:
        number: Counts from 0 inside its study.
        state: Complete: it came to the target, or used up its samples; ``reached`` says which.
        world_size: Ranks that it takes.
        attempts: How often it was started; above 1 after an interruption.
        curve: Of the running or last attempt.
        reached: None where it did not come to the target.
        detail: How it ended, or what it waits for, as a sentence without a full stop; else empty.
        jobs: What engines were given for it, to be found again by whoever goes on with it.
    """

    id: str
    study_id: str
    number: int
    candidate: Candidate
    state: TrialState = TrialState.QUEUED
    world_size: int
    attempts: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    curve: LossCurve
    reached: TargetReached | None = None
    detail: str = ""
    jobs: tuple[EngineJob, ...] = ()

    @property
    def accelerator_hours(self) -> float:
        """What its steps took by now, on all of its ranks."""
        return sum(self.curve.step_times_s) * self.world_size / 3600
