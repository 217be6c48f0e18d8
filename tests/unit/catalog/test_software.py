"""Training software by name, and its origin."""

from __future__ import annotations

import pytest

from autotuner.catalog.software import StackProfile, load_stack, stack_profiles, stacks
from autotuner.core.errors import InvalidInput
from autotuner.core.stack import Stack


def test_every_stack_names_its_framework_and_all_but_the_unknown_one_versions_and_a_date() -> None:
    profiles = stack_profiles()
    assert tuple(profile.name for profile in profiles) == stacks()
    assert all(profile.framework for profile in profiles)
    assert [profile.name for profile in profiles if not (profile.versions and profile.date)] == ["typical"]


def test_a_fitted_stack_has_the_runs_tables_and_devices_that_it_was_fitted_to() -> None:
    nanotron = next(profile for profile in stack_profiles() if profile.name == "nanotron")
    assert [(entry.device, entry.tables) for entry in nanotron.compared] == [
        ("h100-sxm", ("nanotron_ultrascale_sweep",))
    ]
    assert nanotron.compared[0].runs > 500


def test_the_origin_of_a_stack_is_none_of_its_constants() -> None:
    assert not hasattr(load_stack("nemo"), "origin")


def test_an_error_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput):
        StackProfile(name="mine", framework="mine", left_out_error=-0.1)


@pytest.mark.parametrize("name", stacks())
def test_every_stack_can_be_built(name: str) -> None:
    assert load_stack(name).name == name


def test_the_stacks_behind_the_published_tables_are_there() -> None:
    published = {"aleph-alpha", "nanotron", "megatron", "megatron-deepspeed", "llm-foundry", "nemo", "torchtitan"}
    assert published < set(stacks())


def test_the_stack_of_the_trial_job_is_the_default_of_a_job_by_name() -> None:
    assert load_stack("torch").keeps_receive_buffers == Stack().keeps_receive_buffers
    assert not load_stack("torch").blocks_sends
