"""The cheapest course through phases: which candidate each takes, where a change of candidate costs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from autotuner.core.columns import Floats


def cheapest_course(phase_s: Floats, switch_s: float, start: int | None = None) -> tuple[int, ...] | None:
    """The candidate of each phase whose sum of seconds and switches is the smallest; None where no course exists.

    A dynamic programme: to the cheapest way into a candidate leads the cheapest way into the phase before, either in
    the same candidate or from the cheapest of all by a switch. Of equally cheap courses one with fewer switches is
    taken.

    Args:
        phase_s: Shape (phases, candidates); infinite where a candidate cannot run.
        switch_s: What a change of candidate between two phases takes.
        start: The candidate that runs before the first phase; None: none does, and the first costs no switch.
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
    """The fastest candidate of each phase, whatever switches cost; None where a phase has none."""
    course = phase_s.argmin(axis=1)
    if not np.isfinite(phase_s[np.arange(len(course)), course]).all():
        return None
    return tuple(int(candidate) for candidate in course)


def course_s(course: tuple[int, ...], phase_s: Floats, switch_s: float, start: int | None = None) -> float:
    """What a course takes, its switches included."""
    run = course if start is None else (start, *course)
    num_switches = sum(before != after for before, after in pairwise(run))
    return float(sum(phase_s[number, candidate] for number, candidate in enumerate(course))) + num_switches * switch_s
