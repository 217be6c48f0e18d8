"""``autotuner retune``."""

from __future__ import annotations

from autotuner.core.upkeep import RetuneOutcome, Verdict
from autotuner.service.build import build
from autotuner.service.settings import Settings
from tests.runs import conclude_retune
from tests.unit.cli.command_line import CommandLine
from tests.unit.search.upkeep.builders import BETTER, INCUMBENT, SLOWER, runs

JOB = ("--model", "gpt-3-125m", "--cluster", "h100:2", "--global-batch", "8", "--seq-len", "256")
ADD = ("retune", "add", "nightly", "--cron", "0 2 * * *", "--time-zone", "Europe/Berlin", *JOB, "--layout", "dp2 mb1")


def concluded(outcome: RetuneOutcome) -> None:
    """A run that ended so."""
    app = build(Settings(num_workers=0))
    run = app.retuning.run_now("nightly")
    conclude_retune(app.store, run, outcome, now=run.started_at + 60)
    app.store.retunes.set_incumbent("nightly", INCUMBENT, (runs(),))
    app.close()


def test_a_retune_is_added_listed_paused_resumed_and_removed(cli: CommandLine) -> None:
    added = cli.run(*ADD)
    assert "nightly is stored: At 02:00 every day (Europe/Berlin), next 20" in added
    assert "in use: dp2 mb1 flash bf16; what --layout left out is at its default" in added
    assert "dp2 mb1" in cli.run("retune", "list")
    assert "At 02:00 every day (Europe/Berlin), paused" in cli.run("retune", "pause", "nightly")
    assert "paused" in cli.run("retune", "list")
    assert "last run: never" in cli.run("retune", "resume", "nightly")
    assert "it has not run yet" in cli.run("retune", "history", "nightly")
    assert "nightly is forgotten" in cli.run("retune", "remove", "nightly")
    assert "no retune is stored" in cli.run("retune", "list")


def test_what_is_asked_is_stored(cli: CommandLine) -> None:
    options = ("--trials", "7", "--no-search", "--loss", "0.1", "--max-runs", "9", "--on-new-environment", "--adopt")
    request = cli.run_json(*ADD, *options)["request"]
    assert (request["template"]["budget"]["num_trials"], request["searches"], request["adopts"]) == (7, False, True)
    assert (request["test"]["loss"], request["test"]["max_runs"], request["on_new_environment"]) == (0.1, 9, True)


def test_the_history_shows_each_run_beside_the_band_of_its_noise(cli: CommandLine) -> None:
    cli.run(*ADD)
    lost = "the incumbent lost 7.0 % ± 1.0 since 2026-03-01 03:00 CET"
    concluded(RetuneOutcome(verdict=Verdict.REGRESSION, detail=lost, findings=SLOWER))
    text = cli.run("retune", "history", "nightly")
    assert "regression" in text
    assert "930 token/s" in text
    assert "± 1.0 %" in text
    assert lost in text
    assert lost in cli.run("retune", "show", "nightly")
    found = cli.run_json("retune", "history", "nightly")
    assert [run["trigger"] for run in found["runs"]["items"]] == ["manual"]
    assert len(found["trend"]["items"]) == 1


def test_the_better_layout_of_the_last_run_is_adopted(cli: CommandLine) -> None:
    cli.run(*ADD)
    assert "found no better layout" in cli.error_of("retune", "adopt", "nightly", code=4)
    concluded(RetuneOutcome(verdict=Verdict.BETTER_FOUND, detail="10 % faster", findings=BETTER))
    assert "in use: tp2" in cli.run("retune", "adopt", "nightly")
    assert "in use: dp2 mb2" in cli.run("retune", "adopt", "nightly", "--layout", "dp2 mb2")
