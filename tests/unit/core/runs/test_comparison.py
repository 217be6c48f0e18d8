"""How strictly runs are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.runs.comparison import RunGroup, SequentialTest
from autotuner.errors import InvalidInput


@pytest.mark.parametrize("name", ["loss", "power", "false_alarms"])
def test_nothing_is_asked_for_that_no_number_of_runs_can_give(name: str) -> None:
    with pytest.raises(InvalidInput, match="nothing is that sure"):
        replace(SequentialTest(), **{name: 1.0})  # type: ignore[arg-type]  # some of its fields are whole numbers


def test_a_loss_to_find_is_more_than_what_is_accepted() -> None:
    with pytest.raises(InvalidInput, match="less than the loss to find"):
        SequentialTest(tolerance=0.05, loss=0.05)


def test_the_most_runs_are_no_fewer_than_the_fewest() -> None:
    with pytest.raises(InvalidInput, match="at least the fewest runs, 5"):
        SequentialTest(min_runs=5, max_runs=4)


def test_rates_of_runs_are_above_zero() -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        RunGroup(rates=(1.0, 0.0), mfu=0.4, at=0.0)
