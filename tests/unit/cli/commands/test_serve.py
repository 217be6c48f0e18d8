from __future__ import annotations

from tests.unit.cli.command_line import JOB, CommandLine


def test_migrate_makes_a_database_that_can_be_served(first_cli: CommandLine) -> None:
    first_cli.run("migrate")
    assert (first_cli.directory / "autotuner.db").exists()


def test_the_first_command_makes_its_database_by_itself(first_cli: CommandLine) -> None:
    created = first_cli.run_json("sweep", *JOB, "--no-wait")
    assert created["id"] in first_cli.run("show", created["id"])


def test_a_port_that_no_address_has_is_refused(cli: CommandLine) -> None:
    cli.run("serve", "--port", "99999", code=2)
    assert "65535" in cli.error
