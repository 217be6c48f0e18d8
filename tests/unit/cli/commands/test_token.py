"""``autotuner token``, and the token that commands show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.core.access import Scope
from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.service import app_on, serve
from tests.unit.cli.command_line import CommandLine


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> Iterator[People]:
    """Of a service with tokens, which commands are told of by the environment."""
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        monkeypatch.setenv("AUTOTUNER_SERVER", address)
        yield People(app=app, address=address)


def test_a_token_is_made_with_its_text_shown_once_listed_and_taken_back(cli: CommandLine) -> None:
    said = cli.run("token", "add", "ada", "--unfinished-sweeps", "2", "--accelerator-hours-per-day", "64")
    assert said.startswith("ada may run, by this token, which is not shown again:\nat_")
    token_id = said.split("at_")[1].split("_")[0]
    listed = cli.run("token", "list")
    assert "2 sweeps at once, 64 accelerator-hours a day" in listed
    assert "until it is taken back" in listed
    assert said.split("_")[-1].strip() not in listed
    assert f"the token {token_id} of ada counts no more" in cli.run("token", "revoke", token_id)
    assert "taken back 20" in cli.run("token", "list")


def test_where_no_token_is_stored_the_list_says_how_to_make_one(cli: CommandLine) -> None:
    assert "autotuner token add NAME" in cli.run("token", "list")


def test_a_token_expires_so_many_days_from_now(cli: CommandLine) -> None:
    token = cli.run_json("token", "add", "ci", "--scope", "read", "--expires-in-days", "3")["token"]
    assert token["expires_at"] - token["created_at"] == pytest.approx(3 * 86_400, abs=120)
    assert "until 20" in cli.run("token", "list")


def test_who_has_the_database_needs_no_token_even_where_the_service_asks(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_LOGIN", "tokens")
    cli.run("token", "add", "root", "--scope", "admin")
    assert len(cli.run_json("token", "list")["items"]) == 1


def test_commands_show_the_token_of_the_environment(
    cli: CommandLine, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_TOKEN", people.token(Scope.ADMIN, "root"))
    made = cli.run_json("token", "add", "ada")["token"]
    assert made["created_by"] == "root"


def test_who_is_not_let_in_is_told_what_to_show_with_a_code_of_its_own(
    cli: CommandLine, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "AUTOTUNER_TOKEN" in cli.error_of("token", "list", code=11)
    monkeypatch.setenv("AUTOTUNER_TOKEN", people.token(Scope.RUN))
    assert "needs the scope admin" in cli.error_of("token", "list", code=11)


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


def test_a_service_that_others_would_reach_does_not_start_without_a_login(cli: CommandLine) -> None:
    assert "AUTOTUNER_LOGIN=tokens" in cli.error_of("serve", "--port", "0", "--host", "0.0.0.0")
