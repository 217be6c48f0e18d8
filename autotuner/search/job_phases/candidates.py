"""Layouts that may serve in some phase of a job, and what each would take in every phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Booleans, Floats, LayoutColumns, broken_rows, concatenate
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job, JobPhase, PhasedJob
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import RULES
from autotuner.core.space import SearchSpace, default_space
from autotuner.costmodel.layer.recompute import model_flop_per_step
from autotuner.costmodel.predict import predict, predict_totals
from autotuner.costmodel.uncertainty import fit_probability
from autotuner.search.ranking import best_predicted
from autotuner.search.space.legal import legal_chunks

Axes = Mapping[str, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Layouts as columns, and what they take by prediction.

    Attributes:
        layouts: Each once.
        step_s: Of one optimizer step: shape (phases, layouts); infinite where a layout cannot run.
        phase_s: Expected of a whole phase: its steps, over the probability that the layout fits in memory, since a run
            that dies trains nothing.
        relative_error: Half-width of the 80 % interval of a step, as in ``Prediction``.
    """

    layouts: tuple[Layout, ...]
    step_s: Floats
    phase_s: Floats
    relative_error: Floats

    def row(self, layout: Layout) -> int:
        """Number of a layout."""
        return self.layouts.index(layout)


def candidates_of(phased: PhasedJob, axes: Axes, current: Layout | None, limit: int) -> Candidates:
    """The best layouts of each phase, the best that can stay throughout, and the one that runs today.

    Args:
        phased: The job.
        axes: Values that were named for all phases; what suits the job of a phase stands on the others.
        current: What runs before the first phase.
        limit: How many are kept of each phase, and of those that can stay.

    Raises:
        InvalidInput: No layout of the space fits in some phase, or the space is too large.
    """
    found: dict[Layout, None] = {} if current is None else {current: None}
    jobs = [phased.job_in(phase) for phase in phased.phases]
    spaces = [_space(job, phase, axes) for job, phase in zip(jobs, phased.phases, strict=True)]
    for index, (job, space) in enumerate(zip(jobs, spaces, strict=True)):
        table = best_predicted(job, space, limit=limit)
        if not table.rows:
            rule = "is legal" if not table.num_legal else "fits in memory"
            raise InvalidInput(f"phases.{index}", phased.phases[index].name, f"no layout {rule} in this phase")
        found |= dict.fromkeys(row.layout for row in table.rows)
    for space in _unlike(jobs, spaces):
        found |= dict.fromkeys(_staying(phased, jobs, space, limit))
    return _predicted(phased, jobs, tuple(found))


def _space(job: Job, phase: JobPhase, axes: Axes) -> SearchSpace:
    space = default_space(job).with_axes(**axes)
    return space if phase.precision is None else space.with_axes(precision=(phase.precision,))


def _unlike(jobs: Sequence[Job], spaces: Sequence[SearchSpace]) -> list[SearchSpace]:
    """The different spaces, if there is more than one phase to stay in."""
    return list(dict.fromkeys(spaces)) if len(jobs) > 1 else []


def _staying(phased: PhasedJob, jobs: Sequence[Job], space: SearchSpace, limit: int) -> list[Layout]:
    """The fastest layouts of a space that can run in every phase."""
    best, best_s = LayoutColumns.from_layouts([]), np.empty(0)
    for chunk in legal_chunks(jobs[0], space):
        legal = np.ones(len(chunk), dtype=bool)
        for job, phase in zip(jobs, phased.phases, strict=True):
            legal &= _can_run(chunk, job, phase)
        rows = np.flatnonzero(legal)
        whole_s = sum((_expected_s(chunk.take(rows), phased, phase) for phase in phased.phases), np.zeros(len(rows)))
        best_s, best = np.append(best_s, whole_s), concatenate((best, chunk.take(rows)))
        order = np.argsort(best_s, kind="stable")[:limit]
        best_s, best = best_s[order], best.take(order)
    return [best.row(index) for index in range(len(best)) if np.isfinite(best_s[index])]


def _can_run(x: LayoutColumns, job: Job, phase: JobPhase) -> Booleans:
    legal: Booleans = ~broken_rows(x, job, RULES)
    return legal if phase.precision is None else legal & (x.precision == phase.precision)


def _expected_s(x: LayoutColumns, phased: PhasedJob, phase: JobPhase) -> Floats:
    """What the phase takes of every row, all legal in it; infinite where it is not predicted to fit."""
    if not len(x):
        return np.empty(0)
    job = phased.job_in(phase)
    totals, memory_bytes = predict_totals(x, job), float(job.cluster.accelerator.memory_bytes)
    flop_per_s = totals.mfu * job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size
    expected_s = phased.num_steps(phase) * model_flop_per_step(job) / flop_per_s
    expected_s = expected_s / fit_probability(totals.peak_bytes, memory_bytes)
    return np.where(totals.peak_bytes <= memory_bytes, expected_s, np.inf)


def _predicted(phased: PhasedJob, jobs: Sequence[Job], layouts: tuple[Layout, ...]) -> Candidates:
    """Each layout in each phase."""
    x = LayoutColumns.from_layouts(layouts)
    shape = len(jobs), len(layouts)
    step_s, phase_s, relative_error = np.full(shape, np.inf), np.full(shape, np.inf), np.zeros(shape)
    for number, (job, phase) in enumerate(zip(jobs, phased.phases, strict=True)):
        rows = np.flatnonzero(_can_run(x, job, phase))
        predicted = predict(x.take(rows), job)
        rows_fitting, fitting = rows[predicted.fits], predicted.fits
        step_s[number, rows_fitting] = predicted.step_time.total_s[fitting]
        expected_step_s = predicted.step_time.total_s[fitting] / predicted.fit_probability[fitting]
        phase_s[number, rows_fitting] = phased.num_steps(phase) * expected_step_s
        relative_error[number, rows] = predicted.relative_error
    return Candidates(layouts=layouts, step_s=step_s, phase_s=phase_s, relative_error=relative_error)
