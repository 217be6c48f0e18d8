"""What a sweep may be asked, and where it stands."""

from __future__ import annotations

import pytest

from autotuner.domain.layouts.choice import Precision
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.runs.sweep import Budget, SweepState
from autotuner.errors import InvalidInput


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("tensor_parallel_degree", ()),
        ("tensor_parallel_degree", (1, 1)),
        ("micro_batch_size", (0, 1)),
        ("precision", ()),
        ("precision", (Precision.BF16, Precision.BF16)),
    ],
)
def test_a_space_with_a_senseless_axis_is_refused_by_name(field: str, values: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        SearchSpace(**{field: values})
    assert caught.value.field == field


def test_a_choice_whose_integer_is_zero_is_a_legal_value() -> None:
    assert SearchSpace(precision=(Precision.FP32,)).values("precision") == (Precision.FP32,)


@pytest.mark.parametrize("field", ["num_trials", "wall_clock_s", "accelerator_hours", "patience"])
def test_a_budget_of_nothing_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Budget(**{field: 0})
    assert caught.value.field == field


def test_only_queued_and_running_sweeps_may_still_change() -> None:
    assert [state for state in SweepState if not state.finished] == [SweepState.QUEUED, SweepState.RUNNING]
