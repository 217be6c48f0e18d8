"""Trials of other jobs as evidence about the layouts of a table.

A proxy trial ran another job (fewer ranks, fewer layers, a smaller batch) with its own layout, instead of a layout of
the table. A past trial ran the job that it was stored for, and gives evidence about its own layout. Each of them is a
separate observation, with its own prediction, its own shares of the parts, and its own residual, which is correlated
with that of the layout that it gives evidence about (``TaskSimilarity``).
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
from autotuner.search.sampler.gaussian_model import (
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
class ProxyRun:
    """The job and layout that a proxy trial runs in place of a full-size layout; both are usually smaller."""

    job: Job
    """Job that ran, with its own model, workload and cluster. The cluster has as many accelerators as the trial has
    ranks."""
    layout: Layout
    """Layout that ran, which is legal for that job."""


ScaleDown: TypeAlias = Callable[[Layout], ProxyRun]
"""A function that returns the proxy for a layout. It must return the same proxy every time."""

Proxies: TypeAlias = Sequence[tuple[Layout, ProxyRun]]
"""Layouts, each with the trial that ran instead of it."""

PriorOf: TypeAlias = Callable[[LayoutColumns, PredictionColumns, Job], Prior]
"""A function that returns the prior for layouts of a job."""


def times_as_searched(layouts: LayoutColumns, predictions: PredictionColumns, job: Job) -> Prior:
    """Return the prior of each layout's log step time in seconds that a search uses before its first trial.

    It assumes larger errors of the parts of a step than the intervals of predictions do, so that a search learns from
    its first trials.
    """
    return time_prior(layouts, predictions, time_error(job))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Known:
    """The predicted layout of a trial."""

    times: Points
    peaks: Points
    allowance_bytes: float


class ProxyPoints:
    """Makes points of the Gaussian model from proxy trials, which run smaller layouts in place of full-size ones.

    A point is a layout with its prediction. The model learns from the points' results about the full-size layouts.

    Args:
        job: Full-size job of the layouts.
        times: Function that returns the prior of the step times.
    """

    def __init__(self, job: Job, *, times: PriorOf = times_as_searched) -> None:
        self._job = job
        self._times = times
        self._known: dict[ProxyRun, _Known] = {}
        self._numbers: dict[Job, int] = {job: 0}
        self._similarities: dict[tuple[Transfer, int], TaskSimilarity] = {}  # by the number of known jobs

    def times(self, proxies: Proxies) -> Related:
        """Return proxy trials (smaller trials) as points of the Gaussian model of step times.

        Each point is linked to the full-size layout in whose place its proxy trial ran.

        Args:
            proxies: Full-size layouts, each with the proxy trial that ran in its place.
        """
        self._predict([one for _, one in proxies])
        return self._related(proxies, [self._known[one].times for _, one in proxies], TIME_FACTORS, TIME_TRANSFER)

    def peaks(self, proxies: Proxies, results: Sequence[MemoryTrial]) -> RelatedPeaks:
        """Return proxy trials (smaller trials) as points of the Gaussian model of peak memory, with their results.

        Args:
            proxies: Full-size layouts, each with the proxy trial that ran in its place.
            results: Memory result of each of these proxy trials.
        """
        runs = [one for _, one in proxies]
        self._predict(runs)
        points = [self._known[one].peaks for one in runs]
        return RelatedPeaks(
            points=self._related(proxies, points, MEMORY_FACTORS, MEMORY_TRANSFER),
            trials=results,
            limit_bytes=[float(one.job.cluster.accelerator.memory_bytes) for one in runs],
        )

    def memory(self, run: ProxyRun, *, fits: bool, peak_bytes: float | None) -> MemoryTrial:
        """Return the memory result of a proxy trial (a smaller trial): whether it fitted, and its peak.

        A measured peak does not include memory that the allocator does not report. The method adds this part, so that
        the peak can be compared with a predicted peak.

        Args:
            run: Job and layout that the trial ran.
            fits: False if the trial ran out of memory.
            peak_bytes: Highest number of bytes that a rank allocated; None: it was not measured.
        """
        if not fits or peak_bytes is None:
            return MemoryTrial(fits=fits)
        return MemoryTrial(fits=True, peak_bytes=peak_bytes + self.allowance_bytes(run))

    def allowance_bytes(self, run: ProxyRun) -> float:
        """Return the bytes of predicted peak memory that a measured peak does not include, for a proxy trial.

        Args:
            run: Job and layout that the proxy trial (a smaller trial) runs.
        """
        self._predict([run])
        return self._known[run].allowance_bytes

    def jobs(self, proxies: Proxies) -> list[Job]:
        """Return the full-size job, followed by all other jobs whose trials the model has seen.

        A point's task number is the index of its job in this list.

        Args:
            proxies: Full-size layouts, each with the proxy trial that ran in its place.
        """
        for _, one in proxies:
            self._numbers.setdefault(self._on_known_cluster(one.job), len(self._numbers))
        return list(self._numbers)

    def _related(
        self, proxies: Proxies, points: Sequence[Points], factors: Sequence[str], transfer: Transfer
    ) -> Related:
        jobs = self.jobs(proxies)
        key = (transfer, len(jobs))
        if key not in self._similarities:
            self._similarities[key] = TaskSimilarity.between(jobs, factors, transfer)
        placed = replace(
            Points.concatenate(points),
            layouts=LayoutColumns.from_layouts(layout for layout, _ in proxies),
            tasks=np.array([self._numbers[self._on_known_cluster(one.job)] for _, one in proxies]),
        )
        return Related(points=placed, similarity=self._similarities[key])

    def _predict(self, runs: Sequence[ProxyRun]) -> None:
        """Predict the layouts of the trials, and make points for the models of time and memory.

        Each layout is predicted once, and those of one job are predicted together.
        """
        unknown: dict[Job, list[ProxyRun]] = defaultdict(list)
        for one in dict.fromkeys(runs):
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
        """Return the other job with the calibration of the target's cluster, if its hardware is the same.

        Both predictions then use the same speed factor of the cluster, and share the rest of its uncertainty.
        """
        return replace(job, calibration=self._job.calibration) if has_same_hardware(job, self._job) else job


class OtherJobs:
    """Trials of other jobs that the search learns from: its proxy trials, and trials stored before the search.

    A proxy trial runs a smaller job in place of a layout of the table. In all results, the points of past trials come
    first, then those of proxy trials.

    Args:
        job: Job of the search.
        layouts: The layouts of this job: the rows of the table.
        scale_down: Function that returns the proxy trial of a layout; None: trials run the layouts themselves.
        past: Trials on the same hardware and software that were stored before the search.
    """

    def __init__(
        self, job: Job, layouts: LayoutColumns, scale_down: ScaleDown | None = None, past: Sequence[PastTrial] = ()
    ) -> None:
        self._layouts = layouts
        self._scale_down = scale_down
        self._proxy_points = ProxyPoints(job)
        self._of_row: dict[int, ProxyRun] = {}
        self._allowance_of_row: dict[int, float] = {}
        self._past = tuple(past)
        self._timed = [(trial, trial.step_time_s) for trial in past if trial.step_time_s is not None]

    @property
    def past_step_time_s(self) -> list[float]:
        """Measured step times in seconds of trials from before the search, without trials that have no step time."""
        return [seconds for _, seconds in self._timed]

    def times(self, rows: Sequence[int]) -> Related | None:
        """Return points of the Gaussian model of step times: past trials, then the proxy trials of some layouts.

        The result is None if there are no points. Past trials were stored before the search. A proxy trial runs a
        smaller layout in place of a full-size one.

        Args:
            rows: Indices of layouts in the table that have a proxy trial.
        """
        proxies = [_itself(trial) for trial, _ in self._timed] + self._proxies(rows)
        return self._proxy_points.times(proxies) if proxies else None

    def peaks(self, rows: Sequence[int], trials: Sequence[MemoryTrial]) -> RelatedPeaks | None:
        """Return the memory results of past trials, then of the proxy trials (smaller trials) of some layouts.

        Past trials were stored before the search. The result is None if there are no such trials.

        Args:
            rows: Indices of layouts in the table that have a proxy trial.
            trials: Memory result of the proxy trial of each of these rows.
        """
        proxies = [*map(_itself, self._past), *self._proxies(rows)]
        memory = self._proxy_points.memory
        past = [
            memory(_itself(one)[1], fits=not one.ran_out_of_memory, peak_bytes=one.peak_bytes) for one in self._past
        ]
        return self._proxy_points.peaks(proxies, [*past, *trials]) if proxies else None

    def allowance_bytes(self, row: int) -> float:
        """Return the bytes of predicted peak memory that a measured peak does not include, for a row's proxy trial.

        Args:
            row: Row of the table that has a proxy trial (a smaller trial in its place).
        """
        if row not in self._allowance_of_row:  # the sampler reads all trials for each proposal
            self._allowance_of_row[row] = self._proxy_points.allowance_bytes(self._run(row))
        return self._allowance_of_row[row]

    def _proxies(self, rows: Sequence[int]) -> list[tuple[Layout, ProxyRun]]:
        return [(self._layouts.row(row), self._run(row)) for row in rows]

    def _run(self, row: int) -> ProxyRun:
        assert self._scale_down is not None, "a trial runs the layout itself"
        if row not in self._of_row:
            self._of_row[row] = self._scale_down(self._layouts.row(row))
        return self._of_row[row]


def _itself(trial: PastTrial) -> tuple[Layout, ProxyRun]:
    """Return a past trial as evidence about its own layout."""
    return trial.layout, ProxyRun(job=trial.job, layout=trial.layout)
