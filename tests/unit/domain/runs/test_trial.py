"""The states of a trial."""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import pytest

from autotuner.domain.layouts.choice import GradientClip
from autotuner.domain.runs.trial import Breakdown, TrialSettings, TrialState
from autotuner.errors import Conflict, InvalidInput
from tests.builders import cpu_layout, measurement
from tests.trials.specs import trial_spec

LEGAL = {
    (TrialState.QUEUED, TrialState.RUNNING),
    (TrialState.QUEUED, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.COMPLETE),
    (TrialState.RUNNING, TrialState.PRUNED),
    (TrialState.RUNNING, TrialState.FAILED),
    (TrialState.RUNNING, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.QUEUED),  # interrupted, to be tried again
    (TrialState.CANCELLED, TrialState.QUEUED),  # cut short by the end of a sweep that is opened again
}


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_a_legal_step_leads_to_the_new_state(old: TrialState, new: TrialState) -> None:
    assert old.to(new) is new


@pytest.mark.parametrize(("old", "new"), sorted(set(product(TrialState, TrialState)) - LEGAL))
def test_every_other_step_is_a_conflict_that_names_both(old: TrialState, new: TrialState) -> None:
    with pytest.raises(Conflict, match=f"a {old.value} trial cannot become {new.value}"):
        old.to(new)


def test_a_finished_trial_has_no_next_state_but_one_that_was_cut_short() -> None:
    left = {old for old, _ in LEGAL if old.finished}
    assert left == {TrialState.CANCELLED}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warmup_steps", -1),
        ("max_warmup_steps", -1),
        ("measured_steps", 0),
        ("measuring_budget_s", 0.0),
        ("target_interval", -0.01),
        ("profiled_steps", -1),
        ("num_runs", 0),
        ("max_foreign_share", 1.5),
        ("timeout_s", 0.0),
        ("memory_budget_bytes", 0),
        ("max_gradient_norm", 0.0),
        ("proxy_layers_per_stage", (4,)),
        ("proxy_layers_per_stage", (4, 4)),
        ("proxy_layers_per_stage", (0, 2)),
    ],
)
def test_impossible_settings_are_refused_by_name(field: str, value: float | tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        TrialSettings(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize("clip", [GradientClip.PRE, GradientClip.BUCKET])
def test_a_trial_that_clips_before_the_reduction_asks_for_a_norm(clip: GradientClip) -> None:
    layout = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=clip)
    with pytest.raises(InvalidInput, match=f"must be set where clip {clip} is tried") as caught:
        trial_spec(layout)
    assert caught.value.field == "settings.max_gradient_norm"
    assert trial_spec(layout, settings=TrialSettings.default_for(layout)).settings.max_gradient_norm == 1.0


def test_the_parts_of_a_breakdown_sum_to_its_step() -> None:
    parts = [field.name for field in fields(Breakdown) if field.name != "rank"]
    powers = {name: 2.0**exponent for exponent, name in enumerate(parts)}  # no two subsets have the same sum
    assert Breakdown(rank=7, **powers).step_s == 2.0 ** len(parts) - 1


def test_how_well_a_step_time_is_known_is_told_by_its_interval_or_else_by_its_quartiles() -> None:
    assert measurement(step_time_interval_s=0.02).step_time_error_s == 0.02
    few = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=4)
    many = measurement(step_time_interval_s=None, step_time_spread_s=0.1, num_steps=16)
    assert few.step_time_error_s == 2 * many.step_time_error_s
    assert 0.08 < few.step_time_error_s < 0.1  # 1.96 x 1.253 / 1.349 of half the distance of the quartiles
