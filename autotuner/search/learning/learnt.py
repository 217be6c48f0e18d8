"""Learnt: what the trials that a team stored teach about its next jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotuner.costmodel.calibrate import MeasuredRuns, calibrated
from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.jobs.calibration import Calibration
from autotuner.domain.jobs.job import Job
from autotuner.domain.runs.past_trial import PastTrial
from autotuner.search.learning.platform import Platform

__all__ = ["Learnt", "Lesson"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the trials on one platform teach.

    Attributes:
        num_sweeps: Sweeps that the trials belong to.
        last_finished_at: Epoch seconds.
        calibration: How fast the platform is beside what is predicted; None where every trial ran out of memory.
    """

    platform: Platform
    num_trials: int
    num_sweeps: int
    last_finished_at: float
    calibration: Calibration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Stored trials as evidence; made by ``of``.

    Attributes:
        past: The trials, newest first; what their jobs were calibrated by is forgotten, since these trials say it.
    """

    past: tuple[PastTrial, ...]

    @classmethod
    def of(cls, past: Iterable[PastTrial]) -> Learnt:
        """From these trials, in whatever order."""
        known = (replace(trial, job=replace(trial.job, calibration=None)) for trial in past)
        return cls(past=tuple(sorted(known, key=lambda trial: -trial.finished_at)))

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """The job with what the trials say of its step times, in the place of any other calibration.

        Args:
            job: To be predicted.
            trainer: Name of the registered trainer that will run it; None: our own decoder.
        """
        trials = [trial for trial in self._on(Platform.of(job, trainer)) if not trial.ran_out_of_memory]
        job = calibrated(replace(job, calibration=None), _runs(trials))
        if job.calibration is None:
            return job
        num_sweeps = len({trial.sweep_id for trial in trials})
        return replace(job, calibration=replace(job.calibration, num_trials=len(trials), num_sweeps=num_sweeps))

    def relevant(self, job: Job, trainer: str | None = None) -> tuple[PastTrial, ...]:
        """The trials that a search for the job should know, newest first.

        Args:
            job: To be searched.
            trainer: Name of the registered trainer that runs its trials; None: our own decoder.
        """
        return tuple(self._on(Platform.of(job, trainer)))

    def lessons(self) -> Iterator[Lesson]:
        """What the trials of each platform teach, that of the newest trial first."""
        for platform in dict.fromkeys(Platform.of(trial.job, trial.trainer) for trial in self.past):
            trials = self._on(platform)
            yield Lesson(
                platform=platform,
                num_trials=len(trials),
                num_sweeps=len({trial.sweep_id for trial in trials}),
                last_finished_at=trials[0].finished_at,
                calibration=self.calibrated(trials[0].job, platform.trainer).calibration,
            )

    def _on(self, platform: Platform) -> list[PastTrial]:
        return [trial for trial in self.past if Platform.of(trial.job, trial.trainer) == platform]


def _runs(trials: Iterable[PastTrial]) -> Iterator[MeasuredRuns]:
    """The trials that ended with a step time, by job."""
    by_job: dict[Job, list[PastTrial]] = defaultdict(list)
    for trial in trials:
        if trial.step_time_s is not None:
            by_job[trial.job].append(trial)
    for job, some in by_job.items():
        yield _runs_of(job, some)


def _runs_of(job: Job, trials: Sequence[PastTrial]) -> MeasuredRuns:
    seconds = np.array([trial.step_time_s for trial in trials], dtype=float)
    return MeasuredRuns(job=job, layouts=LayoutColumns.from_layouts(t.layout for t in trials), step_time_s=seconds)
