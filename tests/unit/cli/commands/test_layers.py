"""What each layer of communication gives, on the command line."""

from __future__ import annotations

from tests.unit.cli.command_line import JOB, CommandLine


def test_layers_prints_the_best_of_each_and_what_it_gives(cli: CommandLine) -> None:
    text = cli.run("layers", *JOB)
    names = ("strategy", "task scheduling", "collectives", "flow scheduling", "network")
    assert [name for name in (*names, "All together") if name not in text] == []


def test_layers_as_json_holds_five_bests_none_worse_than_the_one_before(cli: CommandLine) -> None:
    gains = cli.run_json("layers", *JOB)["predicted"]["gains"]
    assert [gain["value"] for gain in gains] == sorted(gain["value"] for gain in gains)
    assert len(gains) == 5


def test_layers_of_no_job_names_what_is_missing(cli: CommandLine) -> None:
    assert "--model" in cli.error_of("layers")


def test_a_sweep_brings_its_own_job(cli: CommandLine) -> None:
    assert "must be left out when a sweep is given" in cli.error_of("layers", "sw-k3v7q2mxn5", *JOB)
