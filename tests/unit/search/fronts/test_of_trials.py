from __future__ import annotations

from autotuner.core.objective import Metric, Objective
from autotuner.search.fronts.of_trials import adds_to_front, on_front, valued
from tests.unit.search.results.test_front import FAST, FRUGAL, MIDDLE, WORSE
from tests.unit.search.results.trials import BASE, ran

FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE))


def test_trials_that_no_other_dominates_are_on_the_front_in_their_order() -> None:
    assert on_front(FRONT, [WORSE, FRUGAL, FAST, MIDDLE]) == [FRUGAL, FAST, MIDDLE]


def test_of_no_trials_none_is_on_the_front() -> None:
    assert on_front(FRONT, []) == []


def test_a_trial_that_does_not_tell_a_metric_is_left_out() -> None:
    assert [one.trial for one in valued(FRONT, FRONT.front, [ran(0, BASE, 1.0), FAST])] == [FAST]


def test_values_within_a_hundredth_of_others_in_everything_add_nothing() -> None:
    assert not adds_to_front((0.4, 2.0), [(0.397, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.39, 2.1)])
    assert adds_to_front((0.4, 2.0), [(0.5, 1.9), (0.3, 2.5)])
    assert adds_to_front((0.4, 2.0), [])
