"""Commands about clusters and this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import combinations

import pytest

from autotuner.catalog.hardware import core_times
from autotuner.cli import main
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.profile import DeviceProfile, with_links
from autotuner.core.run import RunState
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.host.machine_facts import host_hash
from autotuner.launch.this_machine import detect_cluster
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from tests import runs
from tests.builders import cpu_core, link_point, pair_measurements, profile
from tests.unit.catalog.topology import published
from tests.unit.cli.command_line import CommandLine

# ---------------------------------------------------------------- cluster
REGISTERED = """
[two]
kind = "processes"
folder = "{folder}"
queues = ["short", "long"]
python = "{python}"
"""

ADD = ("cluster", "add", "pair", "--accelerator", "cpu", "--nodes", "2", "--per-node", "2", "--engine", "two")


def register(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, python: str = sys.executable) -> CommandLine:
    path = cli.directory / "engines.toml"
    path.write_text(REGISTERED.format(folder=cli.directory / "nodes", python=python))
    monkeypatch.setenv("AUTOTUNER_ENGINES", str(path))
    monkeypatch.setenv("AUTOTUNER_POLL_S", "0.1")
    return cli


@pytest.fixture
def registered(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return register(cli, monkeypatch)


def test_engines_lists_what_clusters_may_name_and_whether_it_answers(registered: CommandLine) -> None:
    text = registered.run("engines")
    assert "2 nodes, which are processes of this machine" in text
    assert "short, long" in text
    assert [each["name"] for each in registered.run_json("engines")["items"]] == ["local", "simulated", "two"]


def test_a_cluster_is_added_from_options_and_a_file_and_has_what_is_usual_around_its_accelerator(
    registered: CommandLine,
) -> None:
    saved = registered.run_json(
        "cluster", "add", "ours", "--accelerator", "h100", "--nodes", "16", "--network", "ndr200", "--price", "2"
    )
    assert (saved["num_nodes"], saved["accelerators_per_node"], saved["engine"]) == (16, 8, "local")
    assert saved["inter_node_link"]["name"] == "ndr200"
    assert saved["price_per_accelerator_hour"] == 2.0
    path = registered.directory / "ours.json"
    path.write_text(json.dumps({"accelerator": "cpu", "num_nodes": 2, "oversubscription": 2.0, "engine": "two"}))
    saved = registered.run_json("cluster", "add", "theirs", "--from", str(path), "--nodes", "1", "--queue", "short")
    assert (saved["name"], saved["num_nodes"], saved["oversubscription"], saved["queue"]) == ("theirs", 1, 2.0, "short")


def test_a_prediction_names_a_stored_cluster_and_this_machine_is_not_checked(registered: CommandLine) -> None:
    registered.run(*ADD)
    job = ("--model", "llama-demo", "--cluster", "pair", "--global-batch-size", "8", "--seq-len", "64", "--limit", "1")
    assert "on pair, 8 sequences" in registered.run("predict", *job)
    registered.run("cluster", "add", "here", "--accelerator", "cpu")
    registered.run("cluster", "check", "here", code=2)
    assert "autotuner profile" in registered.error


@pytest.mark.oracle  # nodes that end without a word are listened to for five seconds
def test_a_check_of_an_engine_whose_nodes_lack_torch_says_so_and_ends_with_6(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = cli.directory / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\"\nexit 1\n")
    python.chmod(0o755)
    register(cli, monkeypatch, str(python)).run(*ADD)
    cli.run("cluster", "check", "pair", "--quick", code=6)
    assert "the engine two answers: 2 nodes, which are processes of this machine" in cli.error
    assert "a node of two has no torch or no parallelism-autotuner" in cli.error
    assert "failed" in cli.run("cluster", "show", "pair")


def test_a_check_that_nobody_runs_waits_and_is_cancelled(registered: CommandLine) -> None:
    registered.run(*ADD)
    asked = registered.run_json("cluster", "check", "pair", "--no-wait")
    assert asked["state"] == "queued"
    assert "never" not in registered.run("cluster", "list")
    registered.run("cluster", "remove", "pair", code=4)
    application = build(Settings(num_workers=0))
    application.store.runs.cancel("check", asked["id"], "cancelled before it began", now=1.0)
    application.close()
    assert "no check of pair is running" in registered.run("cluster", "check", "pair", "--cancel")


def test_a_checked_cluster_shows_its_links_measured_beside_described(registered: CommandLine) -> None:
    registered.run(*ADD)
    application = build(Settings(num_workers=0))
    store = application.store
    store.descriptions.create_check("pair", CheckRequest(), now=1.0)
    taken = fit_profile(pair_measurements(), name="pair", measured_at=3.0, num_ranks=4, accelerator=cpu_core())
    store.descriptions.save(replace(taken, cluster="pair"))
    runs.end(store, runs.claimed(store, "check"), RunState.COMPLETE, "the profile of pair is stored", now=3.0)
    application.close()
    shown = registered.run("cluster", "show", "pair")
    assert "500 MB/s" in shown
    assert "complete 1970-01-01" in shown
    assert "the profile of pair is stored" in shown
    registered.run("profile", "--name", "pair", code=2)
    assert "cluster check pair" in registered.error


def test_a_topology_is_read_from_files_and_said_but_not_of_nodes_that_are_not_named(cli: CommandLine) -> None:
    (cli.directory / "topology.conf").write_text(published.SLURM_TREE)
    (cli.directory / "smi.txt").write_text(published.DGX_H100)
    files = [str(cli.directory / name) for name in ("topology.conf", "smi.txt")]
    text = cli.run("cluster", "topology", *files, "--cluster", "h100:64")
    assert "Read: Slurm's topology.conf, nvidia-smi topo -m" in text
    assert "leaf: 6 nodes below a switch" in text
    assert "groups of 2 to 8 neighbours in a node are limited by nvlink4" in text
    assert "note: the file does not say how much of its traffic a switch passes up" in text
    nodes = ["SwitchName=s0 Nodes=n[0-35]", "SwitchName=s1 Nodes=n[36-71]", "SwitchName=s2 Switches=s[0-1]"]
    file = cli.directory / "topology.conf"
    file.write_text("\n".join(nodes))
    text = cli.run("cluster", "topology", str(file))
    assert "72 nodes, those below one switch beside each other: n0, n1, n2, ...\n" in text
    file.write_text(nodes[0])
    assert "36 nodes, those below one switch beside each other: n0, n1, n2, ..., n35\n" in cli.run(
        "cluster", "topology", str(file)
    )


def test_a_cluster_is_added_with_a_network_of_the_catalog_or_of_files(registered: CommandLine) -> None:
    (registered.directory / "topology.conf").write_text(published.SLURM_TREE)
    file = str(registered.directory / "topology.conf")
    added = ("cluster", "add", "--accelerator", "h100", "--nodes", "6")
    named = registered.run_json(*added, "named", "--topology", "fat-tree-2to1")
    assert named["network"]["name"] == "fat-tree-2to1"
    read = registered.run_json(*added, "read", "--topology", file, "--oversubscription", "3")
    assert read["network"]["tiers"][0] | {"latency_s": 0} == {
        "name": "leaf",
        "nodes_per_switch": 6,
        "oversubscription": 3.0,
        "latency_s": 0,
    }
    shown = registered.run("cluster", "show", "read")
    assert "leaf: 6 nodes below a switch, which passes 1/3 of their data to the next tier" in shown


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
    job = ["--model", "llama-demo", "--cluster", "cpu:2", "--global-batch-size", "2", "--seq-len", "32"]
    with pytest.raises(SystemExit) as ended:
        main(["dry-run", *job, "--layout", "zero2 mb1 fp32", "--json"])
    assert not ended.value.code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["fullest_rank"] == 0
    assert printed.err == ""  # progress is for terminals
