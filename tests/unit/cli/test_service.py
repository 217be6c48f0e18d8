"""Commands around a service: its database, tokens, trainers and retunes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.core.upkeep import RetuneOutcome, Verdict
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.service import app_on, serve
from tests.runs import conclude_retune
from tests.unit.cli.command_line import JOB, CommandLine
from tests.unit.search.upkeep.builders import BETTER, INCUMBENT, SLOWER, runs


# ---------------------------------------------------------------- database
def test_the_first_command_makes_its_database_by_itself_as_migrate_does(first_cli: CommandLine) -> None:
    first_cli.run("migrate")
    assert (first_cli.directory / "autotuner.db").exists()
    created = first_cli.run_json("sweep", *JOB, "--no-wait")
    assert created["id"] in first_cli.run("show", created["id"])


# ---------------------------------------------------------------- token
@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> Iterator[People]:
    """Of a service with tokens, which commands are told of by the environment."""
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        monkeypatch.setenv("AUTOTUNER_SERVER", address)
        yield People(app=app, address=address)


def test_commands_with_access_to_the_database_need_no_token(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_LOGIN", "tokens")
    cli.run("token", "add", "root", "--scope", "admin")
    assert len(cli.run_json("token", "list")["items"]) == 1


@pytest.mark.parametrize("text", ["zwei Wörter", "a\nb"])
def test_a_token_that_can_be_none_is_not_sent_and_not_repeated(
    cli: CommandLine, people: People, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("AUTOTUNER_TOKEN", text)
    error = cli.error_of("token", "list", "--server", people.address)
    assert "AUTOTUNER_TOKEN" in error
    assert text not in error


def test_a_whole_token_in_the_place_of_its_id_is_refused_and_not_repeated(cli: CommandLine) -> None:
    error = cli.error_of("token", "revoke", "at_k3v7q2mxn5_" + 40 * "s")
    assert "token list" in error
    assert 40 * "s" not in error


# ---------------------------------------------------------------- trainers
LOOP = """
[loop]
format = "arguments"
command = ["python", "train.py", "{arguments}"]
options = ["micro_batch_size"]
fixed = { precision = "fp32" }
"""


@pytest.fixture
def trainers(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    path = cli.directory / "trainers.toml"
    path.write_text(LOOP)
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(path))
    return cli


def test_trainers_are_listed_with_what_a_sweep_may_search_with_each_which_names_one(trainers: CommandLine) -> None:
    text = trainers.run("trainers")
    for words in ("loop", "arguments", "micro batch size", "precision fp32"):
        assert words in text
    (item,) = trainers.run_json("trainers")["items"]
    assert item["options"] == ["micro_batch_size"]
    job = ("--model", "llama-3-8b", "--cluster", "cpu:1", "--global-batch-size", "4", "--seq-len", "64")
    created = trainers.run_json("sweep", *job, "--trainer", "loop", "--no-wait")
    assert created["request"]["trainer"]["name"] == "loop"
    trainers.run("sweep", *job, "--trainer", "lop", "--no-wait", code=3)
    assert "did you mean 'loop'?" in trainers.error
    (trainers.directory / "trainers.toml").write_text("[loop]")
    trainers.run("trainers", code=2)
    assert "loop.format" in trainers.error


def test_without_any_it_says_how_to_register_one(cli: CommandLine) -> None:
    assert "AUTOTUNER_TRAINERS" in cli.run("trainers")


RETUNED = ("--model", "gpt-3-125m", "--cluster", "h100:2", "--global-batch-size", "8", "--seq-len", "256")
ADD = (
    "retune",
    "add",
    "nightly",
    "--cron",
    "0 2 * * *",
    "--time-zone",
    "Europe/Berlin",
    *RETUNED,
    "--layout",
    "dp2 mb1",
)


def concluded(outcome: RetuneOutcome, detail: str = "") -> None:
    """A run that ended so."""
    app = build(Settings(num_workers=0))
    run = app.retuning.run_now("nightly")
    conclude_retune(app.store, run, outcome, detail, now=run.request.started_at + 60)
    app.store.retunes.set_incumbent("nightly", INCUMBENT, (runs(),))
    app.close()


def test_the_options_of_the_command_are_stored_in_the_request(cli: CommandLine) -> None:
    options = ("--trials", "7", "--no-search", "--loss", "0.1", "--max-runs", "9", "--on-new-environment", "--adopt")
    request = cli.run_json(*ADD, *options)["request"]
    assert (request["template"]["budget"]["num_trials"], request["searches"], request["adopts"]) == (7, False, True)
    assert (request["test"]["loss"], request["test"]["max_runs"], request["on_new_environment"]) == (0.1, 9, True)


def test_the_history_shows_each_run_beside_the_band_of_its_noise(cli: CommandLine) -> None:
    cli.run(*ADD)
    assert "No run yet" in cli.run("retune", "history", "nightly")
    lost = "the incumbent lost 7.0 % ± 1.0 since 2026-03-01 03:00 CET"
    concluded(RetuneOutcome(verdict=Verdict.REGRESSION, findings=SLOWER), lost)
    text = cli.run("retune", "history", "nightly")
    assert "regression" in text
    assert "930 tokens/s" in text
    assert "1.0 %" in text
    assert lost in text
    assert lost in cli.run("retune", "show", "nightly")
    found = cli.run_json("retune", "history", "nightly")
    assert [run["request"]["trigger"] for run in found["runs"]["items"]] == ["manual"]
    assert len(found["trend"]["items"]) == 1


def test_the_better_layout_of_the_last_run_is_adopted(cli: CommandLine) -> None:
    cli.run(*ADD)
    assert "found no better layout" in cli.error_of("retune", "adopt", "nightly", code=4)
    concluded(RetuneOutcome(verdict=Verdict.BETTER_FOUND, findings=BETTER))
    assert "tp2 mb1" in cli.run("retune", "adopt", "nightly")
    assert "dp2 mb2" in cli.run("retune", "adopt", "nightly", "--layout", "dp2 mb2")
    assert "nightly is removed" in cli.run("retune", "remove", "nightly")
