from __future__ import annotations

import statistics

import pytest

from autotuner.core.runs.periods import averages_in, levelled, mean_over_period, shows_average


def test_the_average_lies_in_the_last_step_of_each_period() -> None:
    assert [step for step in range(9) if averages_in(step, 4)] == [3, 7]
    assert not shows_average([4, 5, 6], 4)
    assert shows_average([4, 5, 6, 7], 4)


def test_each_step_bears_its_part_of_an_average_wherever_the_steps_begin() -> None:
    found = levelled([2, 3, 4], [1.0, 5.0, 1.0], 4)
    assert found == [2.0, 2.0]
    assert statistics.median(found) == mean_over_period([2, 3, 4], [1.0, 5.0, 1.0], 4)


@pytest.mark.parametrize("period", [1, 8])
def test_steps_that_are_alike_or_without_an_average_stay_as_they_are(period: int) -> None:
    assert levelled([0, 1, 2], [1.0, 2.0, 3.0], period) == [1.0, 2.0, 3.0]
    assert mean_over_period([0, 1, 2], [1.0, 2.0, 3.0], period) == 2.0
