from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autotuner.search.job_phases.course import cheapest_course, course_s, each_phase_its_own

INF = float("inf")


def test_a_layout_changes_where_that_saves_more_than_the_switch_costs() -> None:
    phase_s = np.array([[1.0, 5.0], [5.0, 1.0]])
    assert cheapest_course(phase_s, 3.9) == (0, 1)
    assert cheapest_course(phase_s, 4.1) in ((0, 0), (1, 1))


def test_a_short_phase_is_not_worth_two_switches() -> None:
    phase_s = np.array([[1.0, 5.0], [3.0, 1.0], [1.0, 5.0]])
    assert cheapest_course(phase_s, 1.5) == (0, 0, 0)
    assert each_phase_its_own(phase_s) == (0, 1, 0)
    assert course_s((0, 1, 0), phase_s, 1.5) == 6.0


def test_what_runs_before_the_first_phase_stays_where_a_switch_costs_more() -> None:
    phase_s = np.array([[2.0, 1.0]])
    assert cheapest_course(phase_s, 1.5, start=0) == (0,)
    assert cheapest_course(phase_s, 0.5, start=0) == (1,)
    assert course_s((1,), phase_s, 0.5, start=0) == 1.5


def test_what_cannot_run_in_a_phase_is_left_before_it() -> None:
    assert cheapest_course(np.array([[1.0, INF], [INF, 1.0]]), 100.0) == (0, 1)
    assert cheapest_course(np.array([[1.0, INF], [INF, INF]]), 1.0) is None
    assert each_phase_its_own(np.array([[1.0, INF], [INF, INF]])) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("start", [None, 2])
def test_no_course_is_cheaper_than_the_one_that_is_found(seed: int, start: int | None) -> None:
    phase_s = np.random.default_rng(seed).uniform(0.0, 3.0, (4, 5))
    found = cheapest_course(phase_s, 0.7, start)
    assert found is not None
    every = [course_s(course, phase_s, 0.7, start) for course in product(range(5), repeat=4)]
    assert course_s(found, phase_s, 0.7, start) == pytest.approx(min(every))  # sums in another order
