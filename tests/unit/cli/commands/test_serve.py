from __future__ import annotations

from tests.unit.cli.command_line import CommandLine


def test_migrate_makes_a_database_that_can_be_served(cli: CommandLine) -> None:
    cli.run("migrate")
    assert (cli.directory / "autotuner.db").exists()
