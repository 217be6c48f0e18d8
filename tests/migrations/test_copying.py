"""A backup is the whole database at one moment, and fills an empty one of either kind."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from autotuner.errors import Conflict, InvalidInput, StoreUnavailable
from autotuner.ports import Store
from autotuner.store.copying import backup, restore
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.schema import head_revision, migrate
from autotuner.store.sql import open_store
from autotuner.store.tables import metadata
from tests.builders import step_report
from tests.contracts.acts import OWNER, create, held_sweep, start
from tests.migrations.saved import load


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


def saved_database(url: str, revision: str) -> None:
    engine = make_engine(url)
    with writing(engine) as connection:
        load(connection, revision)
    engine.dispose()


def test_a_backup_moves_everything_from_sqlite_to_postgresql_and_back(
    sqlite_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    saved_database(sqlite_url, head_revision())
    migrate(sqlite_url)
    before = everything(sqlite_url)
    copied = backup(sqlite_url, tmp_path / "one.db")
    assert copied == {name: len(rows) for name, rows in before.items()}
    assert restore(tmp_path / "one.db", postgresql_url) == copied
    assert everything(postgresql_url) == before
    assert backup(postgresql_url, tmp_path / "two.db") == copied
    assert restore(tmp_path / "two.db", f"sqlite:///{tmp_path}/back.db") == copied
    assert everything(f"sqlite:///{tmp_path}/back.db") == before


def test_a_backup_of_an_older_release_is_led_to_the_newest_schema(sqlite_url: str, tmp_path: Path) -> None:
    saved_database(f"sqlite:///{tmp_path}/old.db", "0009")
    assert restore(tmp_path / "old.db", sqlite_url)["sweeps"] == len(everything(sqlite_url)["sweeps"]) > 0
    store = open_store(sqlite_url)
    assert store.check() == head_revision()
    store.close()


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
            store.add_step(trial.id, step_report(step), owner=OWNER, now=12.0)
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
    with pytest.raises(InvalidInput, match="exists already"):
        backup(sqlite_url, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"


def test_a_database_that_is_not_at_the_newest_schema_is_not_copied(sqlite_url: str, tmp_path: Path) -> None:
    saved_database(sqlite_url, "0009")
    with pytest.raises(StoreUnavailable, match="at schema revision 0009"):
        backup(sqlite_url, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_database_that_holds_something_is_not_restored_over(empty_url: str, tmp_path: Path) -> None:
    saved_database(f"sqlite:///{tmp_path}/source.db", "0009")
    migrate(empty_url)
    store: Store = open_store(empty_url)
    mine = create(store)
    with pytest.raises(Conflict, match="1 rows of sweeps"):
        restore(tmp_path / "source.db", empty_url)
    assert [sweep.id for sweep in store.list_sweeps()[0]] == [mine.id]
    store.close()


def test_a_file_that_is_no_backup_is_refused(sqlite_url: str, tmp_path: Path) -> None:
    text, other, newer = tmp_path / "text.db", tmp_path / "other.db", tmp_path / "newer.db"
    text.write_text("not a database, however long the file is" * 50)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    saved_database(f"sqlite:///{newer}", "0009")
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE autotuner_alembic_version SET version_num = '9999'")
    for file, why in ((tmp_path / "gone.db", "must be a file"), (text, "not a database"), (other, "no such tables")):
        with pytest.raises(InvalidInput, match=why):
            restore(file, sqlite_url)
    with pytest.raises(InvalidInput, match="its schema is 9999"):
        restore(newer, sqlite_url)


def test_a_restore_that_fails_leaves_the_database_empty(sqlite_url: str, tmp_path: Path) -> None:
    saved_database(f"sqlite:///{tmp_path}/source.db", "0009")
    with sqlite3.connect(tmp_path / "source.db") as connection:  # foreign keys are not held here
        connection.execute("DELETE FROM sweeps WHERE id = 'sw-finished00'")
    with pytest.raises(InvalidInput, match="does not fit together"):
        restore(tmp_path / "source.db", sqlite_url)
    assert not any(everything(sqlite_url).values())
