"""What the catalog's cores do beside the work itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.catalog.cores import core_collectives, core_times
from autotuner.catalog.load import load_accelerator, load_cluster
from autotuner.core.profile import DeviceProfile
from autotuner.core.wire import loads, to_dict

KEPT = Path("bench/data/cpu_profile_4.json")


def numbers(value: object) -> list[float]:
    """All of a document's, in order."""
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in numbers(one)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_the_table_holds_what_the_kept_profile_says() -> None:
    profile = loads(DeviceProfile, KEPT.read_text())
    assert profile.core is not None
    # three digits are written
    assert numbers(to_dict(core_times())) == pytest.approx(numbers(to_dict(profile.core)), rel=5e-3)
    assert numbers(to_dict(core_collectives())) == pytest.approx(numbers(to_dict(profile.collectives)), rel=5e-3)


def test_cores_have_it_and_gpus_do_not() -> None:
    assert load_accelerator("cpu").core == core_times()
    assert load_cluster("cpu:4").intra_node_link.measured == core_collectives()
    assert load_accelerator("h100").core is None
    assert load_cluster("h100:8").intra_node_link.measured == ()
