from __future__ import annotations

import pytest

from autotuner.store.schema import migrate
from autotuner.store.sql import open_store
from tests.contracts.acts import finish, held_sweep, measure
from tests.unit.cli.command_line import CommandLine


def finished_sweep(cli: CommandLine) -> str:
    url = f"sqlite:///{cli.directory}/autotuner.db"
    migrate(url)
    store = open_store(url)
    sweep = held_sweep(store)
    measure(store, sweep, 0, mfu=0.3)
    finish(store, sweep)
    store.close()
    return sweep.id


def test_a_backup_restored_elsewhere_shows_the_same_sweep(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_id, file = finished_sweep(cli), str(cli.directory / "copy.db")
    shown = cli.run_json("show", sweep_id)
    assert f"sweeps: 1, trials: 1, rows in all: 10, in {file} (0." in cli.run("backup", file)
    monkeypatch.setenv("AUTOTUNER_DATABASE_URL", f"sqlite:///{cli.directory}/elsewhere.db")
    assert f"rows in all: 10, in sqlite:///{cli.directory}/elsewhere.db" in cli.run("restore", file)
    assert cli.run_json("show", sweep_id) == shown
    assert "restore into an empty one" in cli.error_of("restore", file, code=4)
    assert "exists already" in cli.error_of("backup", file)


def test_thinning_says_what_it_removed(cli: CommandLine) -> None:
    finished_sweep(cli)
    assert cli.run_json("thin", "--days", "0") == {
        "num_sweeps": 1,
        "num_steps": 0,
        "num_events": 0,
        "num_announcements": 1,
        "num_plans": 0,
        "num_audit_entries": 0,
    }
    assert cli.run("thin").startswith("thinned 0 sweeps: 0 steps and 0 events removed; and 0 announcements, 0 plans")
