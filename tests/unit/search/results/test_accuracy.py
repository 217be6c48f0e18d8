from __future__ import annotations

import pytest

from autotuner.search.results.accuracy import accuracy
from tests.builders import big_job, prediction, sweep_request
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())
TOTAL_S = prediction().step_time.total_s


def test_before_the_first_measurement_nothing_is_said() -> None:
    found = accuracy(REQUEST, [died(0, BASE)])
    assert (found.trials, found.median_error, found.sentences) == ((), None, ())


def test_step_times_inside_their_interval_are_counted() -> None:
    trials = [ran(number, BASE, factor * TOTAL_S) for number, factor in enumerate((1.0, 1.09, 0.92, 1.2))]
    found = accuracy(REQUEST, trials)
    assert (found.num_within, found.num_intervals) == (3, 4)
    assert [one.is_within for one in found.trials] == [True, True, True, False]
    assert found.median_error == pytest.approx(0.085)
    assert found.bias == pytest.approx(0.045)
    assert found.sentences[:2] == (
        "3 of 4 step times lie within the 80 % interval of their prediction",
        "half of the step times are off by less than 9 %; in the median they are 4.5 % longer than predicted",
    )


def test_predictions_without_an_interval_are_only_measured_against() -> None:
    found = accuracy(REQUEST, [ran(0, BASE, TOTAL_S, prediction=prediction(relative_error=None))])
    assert (found.num_intervals, found.trials[0].is_within) == (0, None)
    assert found.sentences[0].startswith("half of the step times are off by less than 0 %")


def test_repeats_are_left_out() -> None:
    assert len(accuracy(REQUEST, [ran(0, BASE, 1.0), ran(1, BASE, 1.1, repeats=0)]).trials) == 1


def test_peaks_are_held_to_what_an_allocator_sees() -> None:
    memory = prediction().memory
    peak = int(1.1 * (memory.total_bytes - memory.allowance_bytes))
    found = accuracy(REQUEST, [ran(0, BASE, 1.0, measured={"peak_bytes": (peak,)})])
    assert found.memory_error == pytest.approx(0.1, rel=1e-4)  # whole bytes


def test_nobody_tells_peaks_where_a_trainer_reports_none() -> None:
    assert accuracy(REQUEST, [ran(0, BASE, 1.0, measured={"peak_bytes": ()})]).memory_error is None
