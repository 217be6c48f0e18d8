"""``autotuner cluster`` and ``autotuner engines``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from autotuner.core.cluster_check import CheckRequest
from autotuner.core.profile_fit import fit_profile
from autotuner.core.run import RunState
from autotuner.service.build import build
from autotuner.service.settings import Settings
from tests import runs
from tests.builders import pair_measurements
from tests.unit.catalog.topology import published
from tests.unit.cli.command_line import CommandLine

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
    assert "2 nodes, processes of this machine" in text
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
    job = ("--model", "llama-demo", "--cluster", "pair", "--global-batch", "8", "--seq-len", "64", "--limit", "1")
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
    assert "the engine two answers: 2 nodes, processes of this machine" in cli.error
    assert "a node of two has no torch, or not our package trials" in cli.error
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
    taken = fit_profile(pair_measurements(), name="pair", measured_at=3.0, num_ranks=4, peaks={}, on_cores=True)
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
    assert "note: how much a switch passes up is not told" in text
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
    assert "leaf: 6 nodes below a switch, which passes up 1/3 of it" in registered.run("cluster", "show", "read")
