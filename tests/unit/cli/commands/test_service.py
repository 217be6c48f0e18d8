from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.service import app_on, serve
from tests.unit.cli.command_line import JOB, CommandLine

# ---------------------------------------------------------------- database


# ---------------------------------------------------------------- serve
def test_migrate_makes_a_database_that_can_be_served(first_cli: CommandLine) -> None:
    first_cli.run("migrate")
    assert (first_cli.directory / "autotuner.db").exists()


def test_the_first_command_makes_its_database_by_itself(first_cli: CommandLine) -> None:
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


def test_who_has_the_database_needs_no_token_even_where_the_service_asks(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
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
REGISTERED = """
[loop]
format = "arguments"
command = ["python", "train.py", "{arguments}"]
options = ["micro_batch_size"]
fixed = { precision = "fp32" }
"""


@pytest.fixture
def trainers(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    path = cli.directory / "trainers.toml"
    path.write_text(REGISTERED)
    monkeypatch.setenv("AUTOTUNER_TRAINERS", str(path))
    return cli


def test_trainers_lists_what_a_sweep_may_search_with_each(trainers: CommandLine) -> None:
    text = trainers.run("trainers")
    assert "loop: arguments" in text
    assert "searches micro_batch_size" in text
    assert "fixed precision fp32" in text


def test_trainers_as_json_is_the_answer_of_the_service(trainers: CommandLine) -> None:
    (item,) = trainers.run_json("trainers")["items"]
    assert item["options"] == ["micro_batch_size"]


def test_without_any_it_says_how_to_register_one(cli: CommandLine) -> None:
    assert "AUTOTUNER_TRAINERS" in cli.run("trainers")


def test_a_sweep_names_its_trainer(trainers: CommandLine) -> None:
    job = ("--model", "llama-3-8b", "--cluster", "cpu:1", "--global-batch", "4", "--seq-len", "64")
    created = trainers.run_json("sweep", *job, "--trainer", "loop", "--no-wait")
    assert created["trainer"] == "loop"
    trainers.run("sweep", *job, "--trainer", "lop", "--no-wait", code=3)
    assert "did you mean 'loop'?" in trainers.error


def test_a_wrong_registration_is_wrong_input(trainers: CommandLine) -> None:
    (trainers.directory / "trainers.toml").write_text("[loop]")
    trainers.run("trainers", code=2)
    assert "loop.format" in trainers.error


# ---------------------------------------------------------------- `autotuner webhook`
