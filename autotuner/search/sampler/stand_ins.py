"""Trials of smaller jobs as evidence about the layouts of a table.

A small trial ran another job (fewer ranks, fewer layers, a smaller batch) on a layout of its own, in the place of a
layout of the table. It is an observation at a point of its own: with its own prediction, its own shares of the parts,
and its own residual, of which the layout that it stands for has a part (``kinship``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.predict import PredictionColumns, predict
from autotuner.costmodel.uncertainty import time_error
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.search.sampler.kinship import MEMORY_REACH, TIME_REACH, is_same_hardware, kinship
from autotuner.search.sampler.memory_prior import MEMORY_FACTORS, MemoryTrial, RelatedPeaks, memory_prior
from autotuner.search.sampler.posterior import Kinship, Points, Prior, Related
from autotuner.search.sampler.time_prior import TIME_FACTORS, time_prior

__all__ = ["PriorOf", "ScaleDown", "ScaledTable", "StandIn", "StandIns", "peaks_as_searched", "times_as_searched"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """What a small trial runs in the place of a layout.

    Attributes:
        job: Its own model, workload and cluster, the latter with as many accelerators as the trial has ranks.
        layout: Legal for that job.
    """

    job: Job
    layout: Layout


ScaleDown: TypeAlias = Callable[[Layout], StandIn]
"""Says what a small trial runs in the place of a layout; the same answer every time."""

PriorOf: TypeAlias = Callable[[LayoutColumns, PredictionColumns, Job], Prior]
"""The belief about layouts of a job before any trial."""


def times_as_searched(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """What a search believes of step times."""
    return time_prior(layouts, predictions, time_error(job))


def peaks_as_searched(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """What a search believes of peaks."""
    del job
    return memory_prior(layouts, predictions.memory)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Known:
    """A small trial's layout, predicted."""

    times: Points
    peaks: Points
    allowance_bytes: float


class StandIns:
    """Layouts and what stood in for them, as points of beliefs about the layouts' job.

    Args:
        job: Of the layouts that are stood in for.
        times: Belief about step times.
        peaks: Belief about peaks.
    """

    def __init__(self, job: Job, *, times: PriorOf = times_as_searched, peaks: PriorOf = peaks_as_searched) -> None:
        self._job = job
        self._times = times
        self._peaks = peaks
        self._known: dict[StandIn, _Known] = {}

    def times(self, stood_for: Sequence[tuple[Layout, StandIn]]) -> Related:
        """The small trials as points of the belief about step times, each beside the layout that it stands for."""
        points = [self._of(one).times for _, one in stood_for]
        return self._related(stood_for, points, kinship(self.jobs(stood_for), TIME_FACTORS, TIME_REACH))

    def peaks(self, stood_for: Sequence[tuple[Layout, StandIn]]) -> Related:
        """The same, of the belief about peaks."""
        points = [self._of(one).peaks for _, one in stood_for]
        return self._related(stood_for, points, kinship(self.jobs(stood_for), MEMORY_FACTORS, MEMORY_REACH))

    def allowance_bytes(self, stand_in: StandIn) -> float:
        """Part of a small trial's predicted peak that a measured one does not see."""
        return self._of(stand_in).allowance_bytes

    def jobs(self, stood_for: Sequence[tuple[Layout, StandIn]]) -> list[Job]:
        """The job of the table, and then all others: those that points and kinship have numbers for."""
        return list(dict.fromkeys([self._job, *(self._on_known_cluster(one.job) for _, one in stood_for)]))

    def _related(
        self, stood_for: Sequence[tuple[Layout, StandIn]], points: Sequence[Points], shared: Kinship
    ) -> Related:
        numbers = {job: number for number, job in enumerate(self.jobs(stood_for))}
        placed = replace(
            Points.together(points),
            layouts=LayoutColumns.from_layouts(layout for layout, _ in stood_for),
            jobs=np.array([numbers[self._on_known_cluster(one.job)] for _, one in stood_for]),
        )
        return Related(points=placed, kinship=shared)

    def _of(self, stand_in: StandIn) -> _Known:
        """The small trial's layout as points of both beliefs; predicted once."""
        if stand_in not in self._known:
            layouts, first = LayoutColumns.from_layouts([stand_in.layout]), np.zeros(1, dtype=np.int64)
            job = self._on_known_cluster(stand_in.job)
            predictions = predict(layouts, job)
            self._known[stand_in] = _Known(
                times=self._times(layouts, predictions, job).points(first),
                peaks=self._peaks(layouts, predictions, job).points(first),
                allowance_bytes=float(predictions.memory.allowance_bytes[0]),
            )
        return self._known[stand_in]

    def _on_known_cluster(self, job: Job) -> Job:
        """The small job with what is known of the speed of the target's cluster, where it is the same hardware.

        Both predictions are then for the same cluster factor, and what is left of its deviation is common to both.
        """
        return replace(job, calibration=self._job.calibration) if is_same_hardware(job, self._job) else job


class ScaledTable:
    """The rows of a table as small trials that stand in for them.

    Args:
        job: Of the table.
        layouts: Its rows.
        scale_down: Asked about rows that have a trial.
    """

    def __init__(self, job: Job, layouts: LayoutColumns, scale_down: ScaleDown) -> None:
        self._layouts = layouts
        self._scale_down = scale_down
        self._stand_ins = StandIns(job)
        self._of_row: dict[int, StandIn] = {}

    def times(self, rows: Sequence[int]) -> Related | None:
        """What stands in for each of these rows, as points of the belief about step times; None of no row."""
        return self._stand_ins.times(self._stood_for(rows)) if rows else None

    def peaks(self, rows: Sequence[int], trials: Sequence[MemoryTrial]) -> RelatedPeaks | None:
        """What these trials, one of what stands in for each row, say of peaks; None of no row."""
        if not rows:
            return None
        limits = [float(self._stand_in(row).job.cluster.accelerator.memory_bytes) for row in rows]
        return RelatedPeaks(points=self._stand_ins.peaks(self._stood_for(rows)), trials=trials, limit_bytes=limits)

    def allowance_bytes(self, row: int) -> float:
        """Part of the predicted peak of what stands in for a row that a measured one does not see."""
        return self._stand_ins.allowance_bytes(self._stand_in(row))

    def _stood_for(self, rows: Sequence[int]) -> list[tuple[Layout, StandIn]]:
        return [(self._layouts.row(row), self._stand_in(row)) for row in rows]

    def _stand_in(self, row: int) -> StandIn:
        if row not in self._of_row:
            self._of_row[row] = self._scale_down(self._layouts.row(row))
        return self._of_row[row]
