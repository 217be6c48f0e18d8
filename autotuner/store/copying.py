"""Copies a whole database to one SQLite file, and back into an empty SQLite or PostgreSQL database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Column, Connection, Engine, Enum, MetaData, String, Table, func, insert, inspect, select
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.types import TypeDecorator, TypeEngine

from autotuner.core.errors import Conflict, InvalidInput, StoreUnavailable
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.schema import current_revision, head_revision, is_known, migrate, why_unfit
from autotuner.store.tables import metadata, workers

Copied = dict[str, int]
"""Number of copied rows by table."""

_CHUNK = 1000

_COPIED = [table for table in metadata.sorted_tables if table is not workers]
"""Tables that are copied, referenced tables first. Rows of workers are left out, because they belong to one
installation."""


def backup(url: str, path: Path) -> Copied:
    """Copy the database, as it is at one moment, into a new SQLite file, and return the number of rows of each table.

    Other programs may use the database meanwhile. The file appears only when it is complete. Only its owner may read
    it, since it holds the webhooks' secrets.

    Raises:
        InvalidInput: The file exists, or its folder does not.
        StoreUnavailable: The database cannot be reached, or does not have the newest schema.
    """
    if path.exists():
        raise InvalidInput("file", str(path), "already exists; choose the name of a new file")
    if not path.parent.is_dir():
        raise InvalidInput("file", str(path), "must be in a folder that exists")
    with TemporaryDirectory(dir=path.parent, prefix=".backup-") as folder:
        part = Path(folder) / path.name
        with _opened(url) as source, reading(source) as current:
            _check_newest(current)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            copied = _fill(f"sqlite:///{part}", current)
        _settle(part)
        part.rename(path)
    return copied


def restore(path: Path, url: str) -> Copied:
    """Copy a backup into an empty database in one transaction, and return the number of rows of each table.

    A backup that an older release wrote is migrated to the schema of this release first.

    Raises:
        InvalidInput: The file is not a backup, or a newer release wrote it.
        Conflict: The database is not empty.
        StoreUnavailable: The database cannot be reached or written.
    """
    with TemporaryDirectory(prefix="autotuner-restore-") as folder:
        copy = Path(folder) / "backup.db"
        _read_backup(path, copy)
        try:
            migrate(f"sqlite:///{copy}")
            with _opened(f"sqlite:///{copy}") as source, reading(source) as current:
                return _fill(url, current)
        except (IntegrityError, DataError) as error:
            raise InvalidInput(
                "file", str(path), f"contains rows that contradict each other ({error.orig}); restore another backup"
            ) from error


def _fill(url: str, source: Connection) -> Copied:
    """Bring the database to the newest schema, and copy every table into it."""
    with _opened(url) as target:
        with reading(target) as connection:
            _check_empty(connection)
        migrate(url)
        with writing(target) as connection:
            _check_empty(connection)
            return {table.name: _copy(_plain(table), source, connection) for table in _COPIED}


def _copy(table: Table, source: Connection, target: Connection) -> int:
    num_rows = 0
    rows = source.execution_options(yield_per=_CHUNK).execute(select(table)).mappings()
    for chunk in rows.partitions():
        target.execute(insert(table), [dict(row) for row in chunk])
        num_rows += len(chunk)
    return num_rows


def _plain(table: Table) -> Table:
    """Return the table with its documents as plain text, so that documents of any release can be copied."""
    columns = (Column(column.name, _plain_type(column.type)) for column in table.columns)
    return Table(table.name, MetaData(), *columns)


def _plain_type(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    return String() if isinstance(kind, TypeDecorator | Enum) else kind


# ---------------------------------------------------------------------- checks before copying
def _check_newest(connection: Connection) -> None:
    found = current_revision(connection)
    if refusal := why_unfit(found):
        raise StoreUnavailable(refusal)
    if found != head_revision():
        raise StoreUnavailable(
            f"the database is at schema revision {found}, which is newer than that of this program, "
            f"{head_revision()}; use a newer release of the program"
        )


def _check_empty(connection: Connection) -> None:
    present = set(inspect(connection).get_table_names())
    for table in _COPIED:
        if table.name not in present:
            continue
        num_rows = connection.scalar(select(func.count()).select_from(table))
        if num_rows:
            raise Conflict(
                f"the database already has {num_rows} rows of {table.name}; restore into an empty database "
                "(AUTOTUNER_DATABASE_URL)"
            )


def _read_backup(path: Path, copy: Path) -> None:
    """Copy the backup, including changes that are still in its write-ahead log.

    Raises:
        InvalidInput: The file is not a backup that this release can read.
    """
    if not path.is_file():
        raise InvalidInput("file", str(path), "must be a file that `autotuner backup` wrote")
    try:
        with (
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise InvalidInput("file", str(path), f"must be a file that `autotuner backup` wrote ({error})") from error
    with _opened(f"sqlite:///{copy}") as engine, reading(engine) as connection:
        revision = current_revision(connection)
    if revision is None:
        raise InvalidInput(
            "file", str(path), "must be a file that `autotuner backup` wrote, but the tables of a backup are missing"
        )
    if not is_known(revision):
        rule = (
            f"must be a backup of this release or an older one: its schema is {revision}, and that of "
            f"this program is {head_revision()}"
        )
        raise InvalidInput("file", str(path), rule)


def _settle(path: Path) -> None:
    """Write everything into this one file on the disk, so that it needs no log file beside it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").close()
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
