"""``autotuner profile --keep`` beside profiles that are stored already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.bootstrap import build
from autotuner.catalog.cores import core_times
from autotuner.domain.jobs.profile import DeviceProfile
from autotuner.launch.detect import detect_cluster
from autotuner.machine import host_hash
from autotuner.settings import Settings
from autotuner.store.schema import migrate
from tests.builders import profile
from tests.unit.cli.command_line import CommandLine


def stored(one: DeviceProfile) -> None:
    settings = Settings(num_workers=0)
    migrate(settings.database_url)
    application = build(settings)
    application.store.save_profile(one)
    application.close()


def test_a_profile_that_describes_these_devices_is_kept(cli: CommandLine) -> None:
    cluster = detect_cluster()
    taken = replace(profile(measured_at=12.0), host=host_hash(), num_ranks=cluster.world_size, core=core_times())
    stored(taken)
    (found,) = cli.run_json("profile", "--keep")["items"]
    assert found["measured_at"] == 12.0


@pytest.mark.oracle  # takes a profile
def test_a_profile_of_another_host_is_replaced(cli: CommandLine) -> None:
    stored(replace(profile(measured_at=12.0), host="another", core=core_times()))
    (found,) = cli.run_json("profile", "--keep", "--quick")["items"]
    assert found["measured_at"] > 12.0
    assert found["host"] == host_hash()
