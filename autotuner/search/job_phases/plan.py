"""PhasesPlan: the layout of each phase of a job, beside staying in one layout and beside switching at every turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autotuner.core.columns import LayoutColumns
from autotuner.core.job import PhasedJob, SwitchCost, checkpoint_bytes
from autotuner.core.layout import Layout
from autotuner.core.rules.degrees import DEGREE_RULES
from autotuner.core.rules.legality import require_legal
from autotuner.core.units import format_bytes, format_duration, format_long_duration
from autotuner.search.job_phases.candidates import Candidates, candidates_of
from autotuner.search.job_phases.course import cheapest_course, course_s, each_phase_its_own
from autotuner.search.text.caveats import caveats
from autotuner.search.text.sentences import change_in_words, percent

_LIMIT = 16
"""Candidates of each phase; the fifth best of a phase is rarely the best course's, and each costs microseconds."""

_MOST_STATIC = 5
"""Layouts to stay in that are shown."""


_ANY_WORKLOAD = tuple(rule for rule in DEGREE_RULES if rule.name == "world-size")
"""What a layout keeps whatever it trains: the workload before the first phase is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesQuestion:
    """What is asked about a job of phases.

    Attributes:
        axes: Values that were named for all phases; what suits each phase's job stands on the others.
        current: The layout that runs before the first phase; None: none does.

    Raises:
        InvalidInput: What runs today takes other ranks than the cluster has.
    """

    phased: PhasedJob
    axes: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    current: Layout | None = None

    def __post_init__(self) -> None:
        if self.current is not None:
            require_legal(self.current, self.phased.job, _ANY_WORKLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChoice:
    """One phase in a course.

    Attributes:
        phase: Its name.
        label: The layout in short.
        num_steps: Optimizer steps of the phase.
        step_s: Predicted of one.
        relative_error: Half-width of the 80 % interval of ``step_s``, as in a prediction.
        expected_s: Of the whole phase without switches: its steps, over the probability that the layout fits.
        switch_s: What the switch into it takes; 0 where the layout was running.
        fastest: The phase's own fastest layout in short, whatever switches cost.
        fastest_s: What the phase would take in that.
    """

    phase: str
    layout: Layout
    label: str
    num_steps: float
    step_s: float
    relative_error: float
    expected_s: float
    switch_s: float
    fastest: str
    fastest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A layout for each phase.

    Attributes:
        total_s: Of all phases and switches.
    """

    choices: tuple[PhaseChoice, ...]
    num_switches: int
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesPlan:
    """Which layout trains which phase; nothing here was measured.

    Attributes:
        best: The course that takes least.
        statics: Those that stay in one layout, the fastest first; empty where none can run in every phase.
        greedy: Each phase in its own fastest layout.
        switch_s: What one switch takes.
        switch: Of what that is made.
        checkpoint_bytes: What is written and read of the model.
        sentences: What the best course does and why, without full stops.
        caveats: What a reader of the predictions should know.
    """

    best: Course
    statics: tuple[Course, ...]
    greedy: Course
    switch_s: float
    switch: SwitchCost
    checkpoint_bytes: float
    sentences: tuple[str, ...]
    caveats: tuple[str, ...]

    @property
    def saved_s(self) -> float | None:
        """What the best course saves of the fastest static one; None where nothing can stay."""
        return self.statics[0].total_s - self.best.total_s if self.statics else None


def plan_phases(question: PhasesQuestion) -> PhasesPlan:
    """The best layout of each phase, by prediction, where each switch between two costs what a checkpoint takes.

    Raises:
        InvalidInput: Some phase has no layout that fits, or the space is too large.
    """
    phased = question.phased
    found = candidates_of(phased, question.axes, question.current, _LIMIT)
    start = None if question.current is None else found.row(question.current)
    courses = _Courses(phased, found, start)
    best = cheapest_course(found.phase_s, phased.switch_s, start)
    greedy = each_phase_its_own(found.phase_s)
    assert best is not None, "each phase has a layout that fits"
    assert greedy is not None, "each phase has a layout that fits"
    layouts = dict.fromkeys(found.layouts[row] for row in best)
    told, statics = courses.told(best), tuple(map(courses.told, courses.static()))
    return PhasesPlan(
        best=told,
        statics=statics,
        greedy=courses.told(greedy),
        switch_s=phased.switch_s,
        switch=phased.switch.known_for(phased.job),
        checkpoint_bytes=checkpoint_bytes(phased.job),
        sentences=tuple(_sentences(told, statics, phased)),
        caveats=caveats(phased.job, LayoutColumns.from_layouts(list(layouts))),
    )


class _Courses:
    """Courses of candidates as people read them."""

    def __init__(self, phased: PhasedJob, found: Candidates, start: int | None) -> None:
        self._phased = phased
        self._found = found
        self._start = start

    def static(self) -> list[tuple[int, ...]]:
        """Those that stay in one layout, the fastest first."""
        num_phases, num_candidates = self._found.phase_s.shape
        courses = [(candidate,) * num_phases for candidate in range(num_candidates)]
        finite = [course for course in courses if np.isfinite(self._total_s(course))]
        return sorted(finite, key=self._total_s)[:_MOST_STATIC]

    def told(self, course: tuple[int, ...]) -> Course:
        """A course with what each phase takes."""
        before = (course[0] if self._start is None else self._start, *course)
        switched = [one != other for one, other in pairwise(before)]
        return Course(
            choices=tuple(self._choice(number, row, switched[number]) for number, row in enumerate(course)),
            num_switches=sum(switched),
            total_s=self._total_s(course),
        )

    def _choice(self, number: int, row: int, is_switched: bool) -> PhaseChoice:
        found, phase = self._found, self._phased.phases[number]
        fastest = int(found.phase_s[number].argmin())
        return PhaseChoice(
            phase=phase.name,
            layout=found.layouts[row],
            label=str(found.layouts[row]),
            num_steps=self._phased.num_steps(phase),
            step_s=float(found.step_s[number, row]),
            relative_error=float(found.relative_error[number, row]),
            expected_s=float(found.phase_s[number, row]),
            switch_s=self._phased.switch_s if is_switched else 0.0,
            fastest=str(found.layouts[fastest]),
            fastest_s=float(found.phase_s[number, fastest]),
        )

    def _total_s(self, course: tuple[int, ...]) -> float:
        return course_s(course, self._found.phase_s, self._phased.switch_s, self._start)


# ---------------------------------------------------------------- in words
def _sentences(best: Course, statics: tuple[Course, ...], phased: PhasedJob) -> Iterator[str]:
    switch = format_duration(phased.switch_s)
    size = format_bytes(checkpoint_bytes(phased.job))
    yield f"a switch takes {switch}: the ranks start anew, and a checkpoint of {size} is written and read"
    for before, after in pairwise(best.choices):
        if after.switch_s:
            yield f"switch before {after.phase}: {change_in_words(before.layout, after.layout)}"
    for choice in best.choices:
        if choice.label != choice.fastest:
            saved = format_long_duration(choice.expected_s - choice.fastest_s)
            yield f"stay in {choice.phase}: {choice.fastest} would save {saved} of it, which its switches cost again"
    if not statics:
        yield "no layout can run in every phase: each way through them switches"
        return
    static = statics[0]
    saved_s = static.total_s - best.total_s
    if not best.num_switches:
        yield f"staying in one layout is best: {best.choices[0].label} throughout"
    elif saved_s <= 0:
        yield f"one layout throughout takes no longer: {static.choices[0].label}"
    else:
        share = percent(saved_s / static.total_s)
        yield (
            f"this takes {format_long_duration(best.total_s)}, {format_long_duration(saved_s)} ({share}) less than the "
            f"best that stays throughout, {static.choices[0].label}"
        )
