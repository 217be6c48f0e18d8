"""A backup is the whole database at one moment, and fills an empty one of either kind."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from autotuner.core.errors import Conflict, InvalidInput, StoreUnavailable
from autotuner.core.upkeep import RegressionGateOutcome
from autotuner.store.copying import backup, restore
from autotuner.store.engine import make_engine, reading
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from autotuner.store.tables import metadata
from tests.announcements import webhook
from tests.api.service import StoreDriver, gate_result
from tests.browser.stores import finished_gate, retune
from tests.builders import cpu_cluster, failure, profile, step_report, tiny_model
from tests.contracts.acts import create, held_sweep, lease_of, start


def everything(url: str) -> dict[str, Sequence[Any]]:
    """Every row of every table but that of workers, as the store's types read it."""
    engine = make_engine(url)
    with reading(engine) as connection:
        found = {
            table.name: connection.execute(select(table).order_by(*table.primary_key)).all()
            for table in metadata.sorted_tables
            if table.name != "workers"
        }
    engine.dispose()
    return found


def filled_database(url: str) -> None:
    """One with something in most tables."""
    migrate(url)
    store = open_store(url)
    driver = StoreDriver(store=store)
    sweep = driver.sweep()
    driver.gated(driver.ended(sweep, 0), gate_result())
    driver.ended(sweep, 1, failure())
    driver.estimated(sweep, 2)
    store.descriptions.save(tiny_model())
    store.descriptions.save(cpu_cluster(name="lab"))
    store.descriptions.save(profile())
    store.announcements.save_webhook(webhook())
    retune(driver)
    finished_gate(driver, RegressionGateOutcome.PASSED, 1000.0, "as fast as the baseline")
    driver.finish(sweep)
    store.close()


def test_a_backup_moves_everything_from_sqlite_to_postgresql_and_back(
    sqlite_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    filled_database(sqlite_url)
    before = everything(sqlite_url)
    assert sum(map(bool, before.values())) > len(before) / 2
    copied = backup(sqlite_url, tmp_path / "one.db")
    assert copied == {name: len(rows) for name, rows in before.items()}
    assert restore(tmp_path / "one.db", postgresql_url) == copied
    assert everything(postgresql_url) == before
    assert backup(postgresql_url, tmp_path / "two.db") == copied
    assert restore(tmp_path / "two.db", f"sqlite:///{tmp_path}/back.db") == copied
    assert everything(f"sqlite:///{tmp_path}/back.db") == before


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_taken_while_steps_are_written_is_of_one_moment(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    migrate(url)
    store, enough = open_store(url), threading.Event()
    trial = start(store, held_sweep(store))

    def write() -> None:
        step = 0
        while not enough.is_set():
            store.add_step(trial.id, step_report(step), lease=lease_of(store, trial.id), now=12.0)
            step += 1

    writer = threading.Thread(target=write)
    writer.start()
    for number in range(3):
        backup(url, tmp_path / f"{number}.db")
    enough.set()
    writer.join()
    store.close()
    for number in range(3):
        copy = open_store(f"sqlite:///{tmp_path}/{number}.db")
        told = [event.data for event in copy.events(trial.sweep_id, limit=10_000) if event.kind == "trial.step"]
        assert [data.get("loss") for data in told] == [step.loss for step in copy.get_trial(trial.id).steps]
        copy.close()


def test_a_backup_is_one_file_that_its_owner_alone_reads(sqlite_url: str, tmp_path: Path) -> None:
    migrate(sqlite_url)
    folder = tmp_path / "copies"
    folder.mkdir()
    backup(sqlite_url, folder / "copy.db")
    (file,) = folder.iterdir()
    assert file.name == "copy.db"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_backup_overwrites_nothing(sqlite_url: str, tmp_path: Path) -> None:
    migrate(sqlite_url)
    (tmp_path / "copy.db").write_text("mine")
    with pytest.raises(InvalidInput, match="already exists"):
        backup(sqlite_url, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"


def test_a_database_that_is_not_at_the_newest_schema_is_not_copied(sqlite_url: str, tmp_path: Path) -> None:
    make_engine(sqlite_url).dispose()
    with pytest.raises(StoreUnavailable, match="not migrated"):
        backup(sqlite_url, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_database_that_holds_something_is_not_restored_over(empty_url: str, tmp_path: Path) -> None:
    filled_database(f"sqlite:///{tmp_path}/source.db")
    migrate(empty_url)
    store: Store = open_store(empty_url)
    mine = create(store)
    with pytest.raises(Conflict, match="1 rows of runs"):
        restore(tmp_path / "source.db", empty_url)
    assert [sweep.id for sweep in store.runs.list("sweep")[0]] == [mine.id]
    store.close()


def test_a_file_that_is_no_backup_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    text, other, newer = tmp_path / "text.db", tmp_path / "other.db", tmp_path / "newer.db"
    text.write_text("not a database, however long the file is" * 50)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    filled_database(f"sqlite:///{newer}")
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE autotuner_alembic_version SET version_num = '9999'")
    for file, why in (
        (tmp_path / "gone.db", "must be a file"),
        (text, "not a database"),
        (other, "tables of a backup are missing"),
    ):
        with pytest.raises(InvalidInput, match=why):
            restore(file, sqlite_url)
    with pytest.raises(InvalidInput, match="its schema is 9999"):
        restore(newer, sqlite_url)


def test_a_restore_that_fails_leaves_the_database_empty(sqlite_url: str, tmp_path: Path) -> None:
    filled_database(f"sqlite:///{tmp_path}/source.db")
    with sqlite3.connect(tmp_path / "source.db") as connection:  # foreign keys are not held here
        connection.execute("DELETE FROM runs")
    with pytest.raises(InvalidInput, match="contradict each other"):
        restore(tmp_path / "source.db", sqlite_url)
    assert not any(everything(sqlite_url).values())
