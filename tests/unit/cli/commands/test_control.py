from __future__ import annotations

import pytest

from tests.unit.cli.command_line import JOB, CommandLine
from tests.unit.cli.commands.test_sweep import tiny_sweep


def queued(cli: CommandLine) -> str:
    return str(cli.run_json("sweep", *JOB, "--no-wait")["id"])


def test_a_sweep_that_waits_is_paused_and_resumed(cli: CommandLine) -> None:
    sweep = queued(cli)
    assert f"`autotuner resume {sweep}` has it go on" in cli.run("pause", sweep)
    assert "paused" in cli.run("show", sweep)
    assert f"{sweep} is queued" in cli.run("resume", sweep, "--no-wait")


def test_a_budget_is_extended_by_the_limits_that_are_named(cli: CommandLine) -> None:
    budget = cli.run_json("extend", queued(cli), "--minutes", "3", "--no-wait")["budget"]
    assert (budget["wall_clock_s"], budget["num_trials"]) == (180.0, 20)


def test_an_extension_of_nothing_says_what_to_give(cli: CommandLine) -> None:
    assert "--trials" in cli.error_of("extend", queued(cli), "--no-wait")


def test_a_clone_has_what_the_options_say_and_else_what_the_original_has(cli: CommandLine) -> None:
    sweep = queued(cli)
    more = ["--name", "wider", "--seed", "4", "--space", '{"micro_batch_size": [2]}', "--trials", "5"]
    request = cli.run_json("clone", sweep, *more, "--no-wait")["request"]
    assert (request["name"], request["seed"], request["budget"]["num_trials"]) == ("wider", 4, 5)
    assert request["space"]["micro_batch_size"] == [2]
    assert request["job"]["cluster"]["name"] == "h100:64"


def test_a_paused_sweep_is_followed_no_further_than_to_its_pause(cli: CommandLine) -> None:
    sweep = queued(cli)
    cli.run("pause", sweep)
    assert "paused" in cli.run("extend", sweep, "--trials", "9")


def test_a_trial_that_never_was_cannot_be_run_again(cli: CommandLine) -> None:
    cli.run("rerun", "sw-none-0000", code=3)
    assert "sw-none" in cli.error


@pytest.mark.oracle  # real sweeps
def test_a_finished_sweep_is_extended_and_runs_a_trial_again_with_real_trials(cli: CommandLine) -> None:
    before = cli.run_json(*tiny_sweep(cli.directory, "--trials", "1", "--min-gain", "0"))
    sweep, trial = before["sweep"]["id"], before["trials"]["items"][0]["id"]
    cli.error_of("extend", sweep, "--trials", "1")
    longer = cli.run_json("extend", sweep, "--trials", "2")
    assert (longer["sweep"]["state"], longer["trials"]["total"]) == ("complete", 2)
    again = cli.run_json("rerun", trial)
    assert [one["repeats"] for one in again["trials"]["items"]] == [None, None, 0]
    assert "trial 0 again: MFU" in cli.run("show", sweep)
