"""Connections to SQLite and PostgreSQL, and the transactions that the store makes on them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from autotuner.core.errors import InvalidInput, StoreUnavailable
from autotuner.store.reach import Reach
from autotuner.store.sqlite_file import watch_file

_LOCK_WAIT_S = 30.0  # SQLite has one writer; the others wait for it, far longer than any of our transactions takes
_LOCK_POLL_S = 0.01


def make_engine(url: str, *, answer_s: float | None = None) -> Engine:
    """An engine for that database; connects to nothing yet.

    Args:
        url: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db`` or ``postgresql://user@host/name``. The
            folders of an SQLite path are made.
        answer_s: How long PostgreSQL may take to answer; None: as long as it takes.

    Raises:
        InvalidInput: The URL does not name a database of these two kinds.
        StoreUnavailable: The folders cannot be made.
    """
    address = _address(url)
    if address.get_backend_name() == "postgresql":
        from autotuner.store.postgresql import make_postgresql_engine  # noqa: PLC0415  # the driver: not with SQLite

        return make_postgresql_engine(address, answer_s)
    _make_folders(address)
    engine = _listening(create_engine(address, connect_args={"timeout": _LOCK_WAIT_S}))
    if not str(address.database).startswith("file:"):
        watch_file(engine, str(address.database))
    return engine


def make_memory_engine() -> Engine:
    """An engine for a new, empty SQLite database in this process's memory; it is gone with the engine.

    There is one connection and one transaction has it at a time, from whichever thread; others wait for it.
    """
    engine = create_engine(
        "sqlite://",
        connect_args={"check_same_thread": False},
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=_LOCK_WAIT_S,
    )
    return _listening(engine)


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write: committed at the end, rolled back by any error.

    On SQLite it takes the write lock at once, so two writers queue instead of one failing halfway.

    Raises:
        StoreUnavailable: The database cannot be reached or refuses to write.
    """
    with _transaction(engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")) as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction whose queries all see the database at one moment.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    # A transaction of SQLite reads from one snapshot anyway.
    level = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with _transaction(engine.execution_options(**level)) as connection:
        yield connection


@contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    reach: Reach | None = engine.get_execution_options().get("reach")
    if reach is not None:
        reach.ask()
    try:
        with engine.begin() as connection:
            if reach is not None:
                reach.answered()
            yield connection
    except (IntegrityError, DataError):  # about a value, not about the database
        raise
    except DBAPIError as error:
        if reach is not None:
            reach.failed(error.orig)
        raise StoreUnavailable(f"the database refused: {error.orig}") from error
    except PoolTimeout as error:
        raise StoreUnavailable(f"every connection to the database is in use: {error}") from error


def _address(url: str) -> URL:
    rule = "must be the URL of a database: sqlite:///var/autotuner.db or postgresql://user:password@host/name"
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise InvalidInput("database_url", url.rpartition("@")[2], rule) from error  # before the @ stands the password
    supported = address.get_backend_name() in ("sqlite", "postgresql")
    if not supported or address.database in (None, "", ":memory:"):  # each connection would have a memory of its own
        raise InvalidInput("database_url", address.render_as_string(hide_password=True), rule)
    return address


def _make_folders(address: URL) -> None:
    path = address.database or ""
    if path.startswith("file:"):  # SQLite's own URI, for who wants its options
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"no folder for the database {path}: {error}") from error


def _listening(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    """Readers beside a writer, foreign keys held, and the driver's own idea of transactions off."""
    connection.isolation_level = None
    _keep_log(connection)
    connection.execute("PRAGMA foreign_keys = ON").close()


def _keep_log(connection: Any) -> None:
    """Write-ahead logging; SQLite does not wait when two connections change a new file to it, so this does."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_POLL_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))
