"""``autotuner webhook``."""

from __future__ import annotations

import pytest

from autotuner.bootstrap import App, build
from autotuner.settings import Settings
from tests.announcements import announcement, receiver, status
from tests.runs import give_up_delivery
from tests.unit.cli.command_line import CommandLine

ADD = ("webhook", "add", "slack", "https://hooks.slack.com/services/credential", "--format", "slack")


@pytest.fixture
def app(cli: CommandLine) -> App:
    return build(Settings(database_url=f"sqlite:///{cli.directory}/autotuner.db", num_workers=0))


def test_a_webhook_is_added_with_its_secret_shown_once_listed_and_removed(cli: CommandLine) -> None:
    said = cli.run(*ADD, "--kind", "gate.failed", "--kind", "retune.regression")
    assert "slack posts to https://hooks.slack.com; its secret, not shown again:\nwhsec_" in said
    listed = cli.run("webhook", "list")
    assert "gate.failed, retune.regression" in listed
    assert "whsec_" not in listed
    assert "credential" not in listed
    assert "slack is forgotten" in cli.run("webhook", "remove", "slack")


def test_what_is_no_webhook_is_refused(cli: CommandLine) -> None:
    assert "loopback" in cli.error_of("webhook", "add", "x", "https://127.0.0.1/")


def test_a_test_ends_with_a_code_of_its_own_where_nobody_accepts_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNER_WEBHOOK_ALLOW", "127.0.0.1")
    with receiver(status(200), status(403)) as there:
        cli.run("webhook", "add", "ours", f"http://127.0.0.1:{there.port}/")
        assert cli.run("webhook", "test", "ours") == "accepted: HTTP 200 OK\n"
        assert cli.run("webhook", "test", "ours", code=6) == "not accepted: HTTP 403 Forbidden\n"


def test_deliveries_are_listed_with_the_last_answer_and_sent_again(cli: CommandLine, app: App) -> None:
    cli.run(*ADD)
    app.store.announcements.announce(announcement())
    ((waits,), _) = app.store.announcements.deliveries()
    assert "pending, next 2025-10-09" in cli.run("webhook", "deliveries", "slack")
    give_up_delivery(app.store, waits.id, "HTTP 500 Internal Server Error", now=0.0)
    assert "HTTP 500 Internal Server Error" in cli.run("webhook", "deliveries", "--state", "dead")
    assert f"{waits.id} to slack is pending" in cli.run("webhook", "send-again", waits.id)
    app.close()
