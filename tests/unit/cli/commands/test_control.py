from __future__ import annotations

import pytest

from tests.unit.cli.command_line import JOB, CommandLine
from tests.unit.cli.commands.test_sweeps import tiny_sweep


def queued(cli: CommandLine) -> str:
    return str(cli.run_json("sweep", *JOB, "--no-wait")["id"])


def test_a_paused_sweep_is_followed_no_further_than_to_its_pause(cli: CommandLine) -> None:
    sweep = queued(cli)
    cli.run("pause", sweep)
    assert "paused" in cli.run("extend", sweep, "--trials", "9")


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
