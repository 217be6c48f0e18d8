from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.columns import LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.search.sampler.memory_prior import MemoryTrial
from autotuner.search.sampler.observations import (
    OUT_OF_MEMORY,
    PEAK_BYTES,
    STEP_TIME_S,
    Evidence,
    EvidenceReader,
    params_of,
)

ROWS = [Layout(micro_batch_size=size) for size in (1, 2, 4, 4)]  # the last two are the same


def spaces_of(params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    return {name: CategoricalDistribution([choice]) for name, choice in params.items()}


def read(*trials: FrozenTrial) -> Evidence:
    """MFU x step time is 1 s, 2 s, ... by row; every peak has 10 bytes that cannot be measured."""
    layouts, seconds = LayoutColumns.from_layouts(ROWS), np.arange(1.0, len(ROWS) + 1)
    return EvidenceReader(layouts, worth_per_step=seconds, allowance_bytes=np.full(len(ROWS), 10.0)).read(trials)


def trial(
    row: int,
    state: TrialState = TrialState.COMPLETE,
    *,
    value: float | None = None,
    told: dict[str, Any] | None = None,
    reported: dict[int, float] | None = None,
) -> FrozenTrial:
    params = params_of(ROWS[row])
    return create_trial(
        state=state,
        value=value,
        params=params,
        distributions=spaces_of(params),
        user_attrs=told,
        intermediate_values=reported,
    )


def test_a_finished_trial_tells_its_step_time_that_it_fits_and_its_mfu() -> None:
    evidence = read(trial(1, value=7.0, told={STEP_TIME_S: 4.0}))
    assert evidence.step_time_s == {1: 4.0}
    assert evidence.memory == {1: MemoryTrial(fits=True)}
    assert evidence.best_value == 0.5


def test_without_a_step_time_the_value_is_the_mfu() -> None:
    assert read(trial(1, value=0.25)).step_time_s == {1: 8.0}


@pytest.mark.parametrize("value", [0.0, -0.1, math.inf])
def test_a_value_that_is_no_mfu_needs_a_step_time_beside_it(value: float) -> None:
    with pytest.raises(InvalidInput, match=STEP_TIME_S):
        read(trial(0, value=value))


@pytest.mark.parametrize("name", [STEP_TIME_S, PEAK_BYTES])
@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_times_and_sizes_must_be_positive_numbers(name: str, number: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        read(trial(0, value=0.5, told={name: number}))


def test_a_pruned_trial_tells_its_step_time_but_is_not_the_best() -> None:
    evidence = read(trial(0, TrialState.PRUNED, told={STEP_TIME_S: 4.0}))
    assert (evidence.step_time_s, evidence.best_value) == ({0: 4.0}, None)
    assert evidence.memory == {0: MemoryTrial(fits=True)}


def test_a_pruned_trial_without_a_step_time_is_read_by_the_mfu_it_reported() -> None:
    assert read(trial(1, TrialState.PRUNED, reported={0: 0.2, 1: 0.5, 2: 0.5})).step_time_s == {1: 4.0}


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED])
def test_a_trial_that_ran_out_of_memory_tells_just_that(state: TrialState) -> None:
    evidence = read(trial(0, state, told={OUT_OF_MEMORY: True}))
    assert (evidence.memory, evidence.step_time_s) == ({0: MemoryTrial(fits=False)}, {})


def test_a_trial_that_died_of_something_else_only_counts_as_tried() -> None:
    evidence = read(trial(0, TrialState.FAIL))
    assert evidence == Evidence(tried=frozenset({0}), pending=(), step_time_s={}, memory={}, best_value=None)


def test_a_measured_peak_is_made_comparable_with_the_predicted_one() -> None:
    evidence = read(trial(0, value=0.5, told={PEAK_BYTES: 90}))
    assert evidence.memory == {0: MemoryTrial(fits=True, peak_bytes=100.0)}


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.WAITING])
def test_a_trial_that_has_not_ended_is_pending(state: TrialState) -> None:
    evidence = read(trial(1, state))
    assert evidence.pending == (1,)
    assert evidence.tried == {1}


def test_a_layout_that_occurs_twice_is_tried_in_both_rows() -> None:
    assert read(trial(3, value=0.5)).tried == {2, 3}


def test_the_best_is_the_highest_mfu_of_all_that_finished() -> None:
    assert read(trial(0, value=0.2), trial(1, value=0.4), trial(2, value=0.3)).best_value == pytest.approx(0.4)


def test_parameters_that_are_no_row_of_the_table_tell_nothing() -> None:
    params = params_of(Layout(micro_batch_size=16))
    assert not read(create_trial(value=0.5, params=params, distributions=spaces_of(params))).tried
    assert not read(create_trial(value=0.5)).tried
