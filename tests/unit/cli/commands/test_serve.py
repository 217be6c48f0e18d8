from __future__ import annotations

from tests.unit.cli.command_line import CommandLine


def test_migrate_makes_a_database_that_can_be_served(cli: CommandLine) -> None:
    cli.run("migrate")
    assert (cli.directory / "autotuner.db").exists()


def test_a_port_that_no_address_has_is_refused(cli: CommandLine) -> None:
    cli.run("serve", "--port", "99999", code=2)
    assert "65535" in cli.error
