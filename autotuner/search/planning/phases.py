"""PhasesPlan: the best layout for each phase of a job, compared with one layout for all and with greedy switches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autotuner.core.caveat import Caveat
from autotuner.core.columns import Booleans, Floats, LayoutColumns, broken_rows, concatenate
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job, JobPhase, PhasedJob, SwitchCost, checkpoint_bytes
from autotuner.core.layout import Layout
from autotuner.core.rules.degrees import DEGREE_RULES
from autotuner.core.rules.legality import RULES, require_legal
from autotuner.core.space import SearchSpace, default_space
from autotuner.costmodel.layer.recompute import model_flop_per_step
from autotuner.costmodel.predict import predict, predict_totals
from autotuner.costmodel.uncertainty import fit_probability
from autotuner.search.caveats import caveats
from autotuner.search.predicted_ranking import best_predicted
from autotuner.search.space.legal import legal_chunks

Axes = Mapping[str, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The layouts to choose from in a job of several phases, with each layout's predicted time in each phase."""

    layouts: tuple[Layout, ...]
    """Layouts that are compared, without repetitions."""
    step_s: Floats
    """Duration of one optimizer step: shape (phases, layouts); infinite if a layout cannot run in a phase."""
    phase_s: Floats
    """Expected duration of a whole phase: the duration of its steps, divided by the probability that the layout fits in
    memory, because a run that dies trains nothing."""
    relative_error: Floats
    """Half-width of the 80 % interval of a step, as in ``Prediction``."""


def candidates_of(phased: PhasedJob, axes: Axes, current: Layout | None, limit: int) -> Candidates:
    """Return candidate layouts: the best of each phase, the best that run in all phases, and the present layout.

    Args:
        phased: The job with its phases.
        axes: Values to search for some options, in all phases. Each other option has the default values of the phase's
            job.
        current: The layout that runs before the first phase; None: no layout runs yet.
        limit: Maximum number of best layouts for each phase, and of best layouts for all phases together.

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
            raise InvalidInput(
                f"phases.{index}",
                phased.phases[index].name,
                f"this phase has no layout that {rule}; allow more values in space, or use a larger cluster",
            )
        found |= dict.fromkeys(row.layout for row in table.rows)
    for space in dict.fromkeys(spaces) if len(jobs) > 1 else ():
        found |= dict.fromkeys(_staying(phased, jobs, space, limit))
    return _predicted(phased, jobs, tuple(found))


def _space(job: Job, phase: JobPhase, axes: Axes) -> SearchSpace:
    space = default_space(job).with_axes(**axes)
    return space if phase.precision is None else space.with_axes(precision=(phase.precision,))


def _staying(phased: PhasedJob, jobs: Sequence[Job], space: SearchSpace, limit: int) -> list[Layout]:
    """Return the fastest layouts of a space that can run in every phase."""
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
    """Return the expected duration of the phase with each layout; infinite if a layout is not predicted to fit."""
    if not len(x):
        return np.empty(0)
    job = phased.job_in(phase)
    totals, memory_bytes = predict_totals(x, job), float(job.cluster.accelerator.memory_bytes)
    flop_per_s = totals.mfu * job.cluster.accelerator.reference_flop_per_s * job.cluster.world_size
    expected_s = phased.num_steps(phase) * model_flop_per_step(job) / flop_per_s
    expected_s = expected_s / fit_probability(totals.peak_bytes, memory_bytes)
    return np.where(totals.peak_bytes <= memory_bytes, expected_s, np.inf)


def _predicted(phased: PhasedJob, jobs: Sequence[Job], layouts: tuple[Layout, ...]) -> Candidates:
    """Return the predictions of each layout in each phase."""
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


def cheapest_course(phase_s: Floats, switch_s: float, start: int | None = None) -> tuple[int, ...] | None:
    """Return the index of the layout for each phase that gives the least total time; None if a phase has no layout.

    This is dynamic programming. The cheapest way to a layout in a phase starts from the same layout in the phase
    before, or switches from the cheapest layout of the phase before. Among equally cheap sequences, the function takes
    the one with fewer switches.

    Args:
        phase_s: Seconds of each phase with each layout: shape (phases, candidates); infinite if a layout cannot run.
        switch_s: Seconds of a switch of layout between two phases.
        start: Index of the layout that runs before the first phase; None: no layout runs yet, and the first layout
            costs no switch.
    """
    num_phases, num_candidates = phase_s.shape
    so_far = phase_s[0].copy()
    if start is not None:
        so_far += np.where(np.arange(num_candidates) == start, 0.0, switch_s)
    came_from = np.zeros((num_phases, num_candidates), dtype=np.intp)
    for number in range(1, num_phases):
        cheapest = int(np.argmin(so_far))
        stays = so_far <= so_far[cheapest] + switch_s
        came_from[number] = np.where(stays, np.arange(num_candidates), cheapest)
        so_far = np.where(stays, so_far, so_far[cheapest] + switch_s) + phase_s[number]
    last = int(np.argmin(so_far))
    if not math.isfinite(so_far[last]):
        return None
    course = [last]
    for number in range(num_phases - 1, 0, -1):
        course.append(int(came_from[number, course[-1]]))
    return tuple(reversed(course))


def each_phase_its_own(phase_s: Floats) -> tuple[int, ...] | None:
    """Return the index of the fastest layout for each phase, without the cost of switches between layouts.

    The result is None if no layout can run in some phase.

    Args:
        phase_s: Seconds of each phase with each layout: shape (phases, candidates); infinite if a layout cannot run.
    """
    course = phase_s.argmin(axis=1)
    if not np.isfinite(phase_s[np.arange(len(course)), course]).all():
        return None
    return tuple(int(candidate) for candidate in course)


def course_s(course: tuple[int, ...], phase_s: Floats, switch_s: float, start: int | None = None) -> float:
    """Return the total seconds of all phases if each phase runs with its layout in a sequence, including switches.

    Args:
        course: Index of the layout for each phase.
        phase_s: Seconds of each phase with each layout: shape (phases, candidates).
        switch_s: Seconds of one switch.
        start: Index of the layout that runs before the first phase; None: no layout runs yet.
    """
    run = course if start is None else (start, *course)
    num_switches = sum(before != after for before, after in pairwise(run))
    return float(sum(phase_s[number, candidate] for number, candidate in enumerate(course))) + num_switches * switch_s


_LIMIT = 16
"""Number of candidates per phase. The best course rarely uses a worse one than the fifth, and each costs
microseconds."""

_MOST_STATIC = 5
"""Number of layouts for all phases that are shown."""


_ANY_WORKLOAD = tuple(rule for rule in DEGREE_RULES if rule.name == "world-size")
"""Rules that a layout must keep for any workload, because the workload before the first phase is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesQuestion:
    """A request to plan the best layout for each phase of a job.

    Raises:
        InvalidInput: The layout that runs today does not have as many ranks as the cluster.
    """

    phased: PhasedJob
    axes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """Values that were named, for all phases. Axes without an entry take the values that suit the job of each phase."""
    current: Layout | None = None
    """Layout that runs before the first phase; None: no layout runs before."""

    def __post_init__(self) -> None:
        if self.current is not None:
            require_legal(self.current, self.phased.job, _ANY_WORKLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChoice:
    """The layout chosen for one phase of a job, with its predicted times and the time of the switch to it."""

    phase: str
    """Name of the phase."""
    layout: Layout
    label: str
    """Short text for the layout."""
    num_steps: float
    """Optimizer steps of the phase."""
    step_s: float
    """Predicted duration of one step."""
    relative_error: float
    """Half-width of the 80 % interval of ``step_s``, as in a prediction."""
    expected_s: float
    """Expected duration of the whole phase without switches: the duration of its steps, divided by the probability that
    the layout fits in memory."""
    switch_s: float
    """Duration of the switch to this layout; 0 if the layout was already running."""
    fastest: str
    """Short text for the layout that is fastest in this phase, without the cost of switches."""
    fastest_s: float
    """Duration of the phase with its fastest layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A sequence of layouts, one for each phase of a job, with the total time of the phases and the switches."""

    choices: tuple[PhaseChoice, ...]
    num_switches: int
    total_s: float
    """Duration of all phases and switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesPlan:
    """The predicted best layout for each phase of a job, compared with simpler plans.

    Nothing here was measured.
    """

    best: Course
    """Course with the shortest duration."""
    statics: tuple[Course, ...]
    """Courses that keep one layout for all phases, the fastest first; empty if no layout can run in every phase."""
    greedy: Course
    """Course in which each phase has its own fastest layout."""
    switch_s: float
    """Duration of one switch."""
    switch: SwitchCost
    """Parts of the duration of a switch."""
    checkpoint_bytes: float
    """Bytes of the checkpoint that a switch writes and reads."""
    caveats: tuple[Caveat, ...]
    """Caveats for readers of the predictions."""

    @property
    def saved_s(self) -> float | None:
        """Seconds that the best plan saves over the fastest single layout; None if no layout can run in all phases."""
        return self.statics[0].total_s - self.best.total_s if self.statics else None


def plan_phases(question: PhasesQuestion) -> PhasesPlan:
    """Return the best layout for each phase of a job by prediction.

    A switch of layout between two phases costs the time to write and read a checkpoint.

    Raises:
        InvalidInput: Some phase has no layout that fits, or the space is too large.
    """
    phased = question.phased
    found = candidates_of(phased, question.axes, question.current, _LIMIT)
    start = None if question.current is None else found.layouts.index(question.current)
    best = cheapest_course(found.phase_s, phased.switch_s, start)
    greedy = each_phase_its_own(found.phase_s)
    assert best is not None, "each phase has a layout that fits"
    assert greedy is not None, "each phase has a layout that fits"
    layouts = dict.fromkeys(found.layouts[row] for row in best)
    best_course = _course(best, phased, found, start)
    staying = ((row,) * len(phased.phases) for row in range(len(found.layouts)))
    static = [_course(one, phased, found, start) for one in staying if np.isfinite(found.phase_s[:, one[0]]).all()]
    statics = tuple(sorted(static, key=lambda course: course.total_s)[:_MOST_STATIC])
    return PhasesPlan(
        best=best_course,
        statics=statics,
        greedy=_course(greedy, phased, found, start),
        switch_s=phased.switch_s,
        switch=phased.switch.known_for(phased.job),
        checkpoint_bytes=checkpoint_bytes(phased.job),
        caveats=caveats(phased.job, LayoutColumns.from_layouts(list(layouts))),
    )


def _course(rows: tuple[int, ...], phased: PhasedJob, found: Candidates, start: int | None) -> Course:
    """Return a course with the duration of each phase."""
    switched = [one != other for one, other in pairwise((rows[0] if start is None else start, *rows))]
    choices = []
    for number, (row, phase) in enumerate(zip(rows, phased.phases, strict=True)):
        fastest = int(found.phase_s[number].argmin())
        choice = PhaseChoice(
            phase=phase.name,
            layout=found.layouts[row],
            label=str(found.layouts[row]),
            num_steps=phased.num_steps(phase),
            step_s=float(found.step_s[number, row]),
            relative_error=float(found.relative_error[number, row]),
            expected_s=float(found.phase_s[number, row]),
            switch_s=phased.switch_s if switched[number] else 0.0,
            fastest=str(found.layouts[fastest]),
            fastest_s=float(found.phase_s[number, fastest]),
        )
        choices.append(choice)
    total_s = course_s(rows, found.phase_s, phased.switch_s, start)
    return Course(choices=tuple(choices), num_switches=sum(switched), total_s=total_s)
