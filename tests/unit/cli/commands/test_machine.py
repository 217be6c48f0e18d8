from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from itertools import combinations

import pytest
from rich.console import Console

from autotuner.catalog.hardware import core_times
from autotuner.cli import main
from autotuner.cli.views.machine import dry_run_view
from autotuner.core.dry_run import CollectiveCount, DryRun, HeldBytes, OperationCounts, RankDryRun
from autotuner.core.profile import DeviceProfile, with_links
from autotuner.host.machine import host_hash
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


def test_stored_links_are_shown_with_those_that_are_not_healthy_or_said_to_be_none(cli: CommandLine) -> None:
    stored(profile())
    assert "no links were measured; `autotuner profile --links` measures them" in cli.run(
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


def answer(rank: int, gigabytes: float) -> RankDryRun:
    held = HeldBytes(
        parameters_bytes=2e9,
        gathered_bytes=0.0,
        gradients_bytes=2e9,
        optimizer_bytes=6e9,
        activations_bytes=gigabytes * 1e9,
    )
    collectives = (CollectiveCount(kind="all_gather", num_calls=1000, num_bytes=3e9),)
    counts = OperationCounts(flop=5e15, moved_bytes=1e12, num_operations=100_000, collectives=collectives)
    return RankDryRun(rank=rank, held=held, counts=counts)


def text_of(found: DryRun) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(dry_run_view(found, title="a job"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_every_rank_has_a_column_the_fullest_is_marked_and_what_was_left_out_is_said() -> None:
    text = text_of(DryRun(ranks=(answer(0, 20.0), answer(48, 4.0))))
    assert "rank 0, fullest" in text
    assert "rank 48" in text
    assert "30 GB" in text
    assert "1,000 x, 3 GB" in text
    found = DryRun(
        ranks=(answer(0, 1.0),), layers_run=(4, 6), micro_batches_run=(5, 6), notes=("nothing was compiled",)
    )
    text = text_of(found)
    assert "4 and 6 layers per stage" in text
    assert "5 and 6 micro-batches" in text
    assert "Nothing was compiled." in text


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch", "2", "--seq-len", "32"]
    with pytest.raises(SystemExit) as ended:
        main(["dry-run", *job, "--layout", "zero2 mb1 fp32", "--json"])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fullest_rank"] == 0
    assert printed.err == ""  # progress is for terminals
