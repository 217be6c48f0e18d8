"""Where training software of the catalog comes from."""

from __future__ import annotations

import pytest

from autotuner.catalog.load import load_stack, stacks
from autotuner.catalog.stack_profiles import StackProfile, stack_profiles
from autotuner.core.errors import InvalidInput


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
