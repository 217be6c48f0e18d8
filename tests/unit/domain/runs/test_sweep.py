"""What a sweep may be asked, and where it stands."""

from __future__ import annotations

import pytest

from autotuner.domain.runs.sweep import Budget, SweepState
from autotuner.errors import InvalidInput


@pytest.mark.parametrize("field", ["num_trials", "wall_clock_s", "accelerator_hours", "patience"])
def test_a_budget_of_nothing_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Budget(**{field: 0})
    assert caught.value.field == field


def test_queued_running_and_paused_sweeps_may_change_by_themselves_or_be_taken_up() -> None:
    unfinished = [SweepState.QUEUED, SweepState.RUNNING, SweepState.PAUSED]
    assert [state for state in SweepState if not state.finished] == unfinished
