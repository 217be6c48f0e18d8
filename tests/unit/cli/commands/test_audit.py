from __future__ import annotations

from tests.unit.cli.command_line import CommandLine


def test_what_was_changed_is_listed_newest_first(cli: CommandLine) -> None:
    assert "nothing was changed or refused yet" in cli.run("audit")
    cli.run("cluster", "add", "pair", "--accelerator", "cpu", "--nodes", "2", "--per-node", "2")
    cli.run("cluster", "remove", "pair")
    text = cli.run("audit", "--limit", "1")
    assert "remove_cluster" in text
    assert "and 1 older" in text
    listed = cli.run_json("audit", "--caller", "")
    assert [entry["action"] for entry in listed["items"]] == ["remove_cluster", "save_cluster"]
    assert cli.run_json("audit", "--caller", "ada")["total"] == 0
