"""Trials of other jobs as evidence about the layouts of a table.

A proxy trial ran another job (fewer ranks, fewer layers, a smaller batch) on a layout of its own, in the place of a
layout of the table; a past trial ran whatever job it was stored for, and stands for its own layout. Either is an
observation at a point of its own: with its own prediction, its own shares of the parts, and its own residual, of which
the layout that it stands for has a part (``TaskSimilarity``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.costmodel.uncertainty import time_error
from autotuner.search.sampler.model import (
    MEMORY_TRANSFER,
    TIME_TRANSFER,
    Points,
    Prior,
    Related,
    TaskSimilarity,
    Transfer,
    has_same_hardware,
)
from autotuner.search.sampler.priors import (
    MEMORY_FACTORS,
    TIME_FACTORS,
    MemoryTrial,
    RelatedPeaks,
    memory_prior,
    time_prior,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A layout and a job that a proxy trial runs in the place of a layout."""

    job: Job
    """Its own model, workload and cluster, the latter with as many accelerators as the trial has ranks."""
    layout: Layout
    """Legal for that job."""


ScaleDown: TypeAlias = Callable[[Layout], StandIn]
"""Says what a proxy trial runs in the place of a layout; the same answer every time."""

StoodFor: TypeAlias = Sequence[tuple[Layout, StandIn]]
"""Layouts with what ran in the place of each."""

PriorOf: TypeAlias = Callable[[LayoutColumns, PredictionColumns, Job], Prior]
"""The belief about layouts of a job before any trial."""


def times_as_searched(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """Return what a search believes of step times."""
    return time_prior(layouts, predictions, time_error(job))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Known:
    """A trial's layout, predicted."""

    times: Points
    peaks: Points
    allowance_bytes: float


class StandIns:
    """Layouts and what stood in for them, as points of beliefs about the layouts' job.

    Args:
        job: Of the layouts that are stood in for.
        times: Belief about step times.
    """

    def __init__(self, job: Job, *, times: PriorOf = times_as_searched) -> None:
        self._job = job
        self._times = times
        self._known: dict[StandIn, _Known] = {}
        self._numbers: dict[Job, int] = {job: 0}
        self._similarities: dict[tuple[Transfer, int], TaskSimilarity] = {}  # by the number of jobs that were known

    def times(self, stood_for: StoodFor) -> Related:
        """Return the trials as points of the belief about step times, each beside the layout that it stands for."""
        self._predict([one for _, one in stood_for])
        return self._related(stood_for, [self._known[one].times for _, one in stood_for], TIME_FACTORS, TIME_TRANSFER)

    def peaks(self, stood_for: StoodFor, told: Sequence[MemoryTrial]) -> RelatedPeaks:
        """Return what each of the trials told of peaks, likewise."""
        stand_ins = [one for _, one in stood_for]
        self._predict(stand_ins)
        points = [self._known[one].peaks for one in stand_ins]
        return RelatedPeaks(
            points=self._related(stood_for, points, MEMORY_FACTORS, MEMORY_TRANSFER),
            trials=told,
            limit_bytes=[float(one.job.cluster.accelerator.memory_bytes) for one in stand_ins],
        )

    def memory(self, stand_in: StandIn, *, fits: bool, peak_bytes: float | None) -> MemoryTrial:
        """Return what a trial tells whose ranks allocated so much at most, where that was measured."""
        if not fits or peak_bytes is None:
            return MemoryTrial(fits=fits)
        return MemoryTrial(fits=True, peak_bytes=peak_bytes + self.allowance_bytes(stand_in))

    def allowance_bytes(self, stand_in: StandIn) -> float:
        """Part of a trial's predicted peak that a measured one does not see."""
        self._predict([stand_in])
        return self._known[stand_in].allowance_bytes

    def jobs(self, stood_for: StoodFor) -> list[Job]:
        """Return the job of the table and all others that were asked about, by their numbers in points."""
        for _, one in stood_for:
            self._numbers.setdefault(self._on_known_cluster(one.job), len(self._numbers))
        return list(self._numbers)

    def _related(
        self, stood_for: StoodFor, points: Sequence[Points], factors: Sequence[str], transfer: Transfer
    ) -> Related:
        jobs = self.jobs(stood_for)
        key = (transfer, len(jobs))
        if key not in self._similarities:
            self._similarities[key] = TaskSimilarity.between(jobs, factors, transfer)
        placed = replace(
            Points.concatenate(points),
            layouts=LayoutColumns.from_layouts(layout for layout, _ in stood_for),
            tasks=np.array([self._numbers[self._on_known_cluster(one.job)] for _, one in stood_for]),
        )
        return Related(points=placed, similarity=self._similarities[key])

    def _predict(self, stand_ins: Sequence[StandIn]) -> None:
        """Make points of both beliefs of the trials' layouts, once and those of a job together."""
        unknown: dict[Job, list[StandIn]] = defaultdict(list)
        for one in dict.fromkeys(stand_ins):
            if one not in self._known:
                unknown[self._on_known_cluster(one.job)].append(one)
        for job, some in unknown.items():
            layouts = LayoutColumns.from_layouts(one.layout for one in some)
            predictions = predict(layouts, job)
            times, peaks = self._times(layouts, predictions, job), memory_prior(layouts, predictions.memory)
            for row, one in enumerate(some):
                self._known[one] = _Known(
                    times=times.points(np.array([row])),
                    peaks=peaks.points(np.array([row])),
                    allowance_bytes=float(predictions.memory.allowance_bytes[row]),
                )

    def _on_known_cluster(self, job: Job) -> Job:
        """Return the other job with what is known of the speed of the target's cluster, where it is the same hardware.

        Both predictions are then for the same cluster factor, and what is left of its deviation is common to both.
        """
        return replace(job, calibration=self._job.calibration) if has_same_hardware(job, self._job) else job


class OtherJobs:
    """Evidence of what ran in the place of a table's rows, and of what ran before its search.

    Points are those of past trials first, then those of what stands in for rows.

    Args:
        job: Of the table.
        layouts: Its rows.
        scale_down: Asked about rows that have a trial; None: trials run the layouts themselves.
        past: Trials on such hardware and software that were stored before.
    """

    def __init__(
        self, job: Job, layouts: LayoutColumns, scale_down: ScaleDown | None = None, past: Sequence[PastTrial] = ()
    ) -> None:
        self._layouts = layouts
        self._scale_down = scale_down
        self._stand_ins = StandIns(job)
        self._of_row: dict[int, StandIn] = {}
        self._past = tuple(past)
        self._timed = [(trial, trial.step_time_s) for trial in past if trial.step_time_s is not None]

    @property
    def past_step_time_s(self) -> list[float]:
        """Return the step times of the past trials that were timed."""
        return [seconds for _, seconds in self._timed]

    def times(self, rows: Sequence[int]) -> Related | None:
        """Past trials, and what stands in for each of these rows, as points of the belief about step times."""
        stood_for = [_itself(trial) for trial, _ in self._timed] + self._stood_for(rows)
        return self._stand_ins.times(stood_for) if stood_for else None

    def peaks(self, rows: Sequence[int], trials: Sequence[MemoryTrial]) -> RelatedPeaks | None:
        """Return what past trials, and these of what stands in for each row, say of peaks."""
        stood_for = [*map(_itself, self._past), *self._stood_for(rows)]
        memory = self._stand_ins.memory
        past = [
            memory(_itself(one)[1], fits=not one.ran_out_of_memory, peak_bytes=one.peak_bytes) for one in self._past
        ]
        return self._stand_ins.peaks(stood_for, [*past, *trials]) if stood_for else None

    def allowance_bytes(self, row: int) -> float:
        """Part of the predicted peak of what stands in for a row that a measured one does not see."""
        return self._stand_ins.allowance_bytes(self._stand_in(row))

    def _stood_for(self, rows: Sequence[int]) -> list[tuple[Layout, StandIn]]:
        return [(self._layouts.row(row), self._stand_in(row)) for row in rows]

    def _stand_in(self, row: int) -> StandIn:
        assert self._scale_down is not None, "a trial runs the layout itself"
        if row not in self._of_row:
            self._of_row[row] = self._scale_down(self._layouts.row(row))
        return self._of_row[row]


def _itself(trial: PastTrial) -> tuple[Layout, StandIn]:
    """A past trial stands for its own layout."""
    return trial.layout, StandIn(job=trial.job, layout=trial.layout)
