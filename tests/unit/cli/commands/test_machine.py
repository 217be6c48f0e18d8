from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import pytest

from autotuner.catalog.hardware import core_times
from autotuner.cli import main
from autotuner.core.profile import DeviceProfile, with_links
from autotuner.host.facts import host_hash
from autotuner.launch.this_machine import detect_cluster
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from tests.builders import link_point, profile
from tests.unit.cli.command_line import CommandLine


# ---------------------------------------------------------------- profile
def stored(one: DeviceProfile) -> None:
    settings = Settings(num_workers=0)
    migrate(settings.database_url)
    application = build(settings)
    application.store.descriptions.save(one)
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


def test_stored_links_are_shown_with_those_that_are_not_healthy_or_said_to_be_none(cli: CommandLine) -> None:
    stored(profile())
    assert "No links were measured; `autotuner profile --links` measures them" in cli.run(
        "profile", "--links", "--show"
    )
    points = tuple(link_point(*ends, delay=0.03 if ends == (0, 1) else 50e-6) for ends in combinations(range(4), 2))
    stored(with_links(profile(), points, measured_at=5.0))
    shown = cli.run("profile", "--links", "--show")
    assert "0 - 1" in shown
    assert "unhealthy" in shown


@pytest.mark.oracle  # ranks import torch
def test_a_machine_that_has_a_profile_measures_its_links_alone(cli: CommandLine) -> None:
    cluster = detect_cluster()
    taken = replace(profile(measured_at=12.0), host=host_hash(), num_ranks=cluster.world_size, core=core_times())
    stored(taken)
    (found,) = cli.run_json("profile", "--links", "--quick")["items"]
    assert found["measured_at"] == 12.0
    assert found["links_measured_at"] > 12.0
    ends = cluster.world_size
    assert len(found["measurements"]["links"]) == ends * (ends - 1) // 2


# ---------------------------------------------------------------- dry run


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch", "2", "--seq-len", "32"]
    with pytest.raises(SystemExit) as ended:
        main(["dry-run", *job, "--layout", "zero2 mb1 fp32", "--json"])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fullest_rank"] == 0
    assert printed.err == ""  # progress is for terminals
