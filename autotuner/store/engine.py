"""Connections to SQLite and PostgreSQL, the store's transactions on them, and paged queries."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Row,
    Select,
    Table,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from autotuner.core.errors import InvalidInput, NotFound, StoreUnavailable
from autotuner.core.listed import COUNTED_BEHIND
from autotuner.store.options import Page

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
AnySelect: TypeAlias = Select[*tuple[Any, ...]]

_LOCK_WAIT_S = 30.0  # SQLite has one writer at a time; the others wait, far longer than any of our transactions takes
_LOCK_POLL_S = 0.01

_REST_S = 1.0
"""Seconds for which all threads wait after the database did not answer a query."""

_QUESTION_S = 30.0
"""Seconds for which a single thread may test whether the database answers again; longer than any timeout of a query."""


def make_engine(url: str, *, answer_s: float | None = None) -> Engine:
    """Return the SQLAlchemy engine for the database of a URL. It does not connect to the database yet.

    Args:
        url: ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db`` or ``postgresql://user@host/name``. Missing
            folders of an SQLite path are created.
        answer_s: Longest time in seconds that PostgreSQL may take to answer; None: no limit.

    Raises:
        InvalidInput: The URL names neither a SQLite nor a PostgreSQL database.
        StoreUnavailable: The folders cannot be created.
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
    """Return an engine for a new, empty SQLite database in memory, which is deleted together with the engine.

    The database has one connection. Transactions of any thread use the connection one after the other.
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
    """Open a transaction that may write. It is committed at the end of the block, or rolled back after an error.

    On SQLite, the transaction takes the write lock when it begins. Therefore a second writer waits, and does not fail
    in the middle of its work.

    Raises:
        StoreUnavailable: The database cannot be reached or refuses to write.
    """
    with _transaction(engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")) as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction for reading, in which all queries see the database as it was at one moment.

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
        raise StoreUnavailable(f"the database refused the request: {error.orig}") from error
    except PoolTimeout as error:
        raise StoreUnavailable(f"all connections to the database are in use: {error}; try again later") from error


def _address(url: str) -> URL:
    rule = "must be the URL of a database: sqlite:///var/autotuner.db or postgresql://user:password@host/name"
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise InvalidInput("database_url", url.rpartition("@")[2], rule) from error  # the password is before the @
    supported = address.get_backend_name() in ("sqlite", "postgresql")
    if not supported or address.database in (None, "", ":memory:"):  # each connection would have its own database
        raise InvalidInput("database_url", address.render_as_string(hide_password=True), rule)
    return address


def _make_folders(address: URL) -> None:
    path = address.database or ""
    if path.startswith("file:"):  # SQLite's own URI, which may carry options
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the folder of the database {path} cannot be made: {error}") from error


def _listening(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    """Set up a new SQLite connection.

    Readers and a writer can work at the same time, foreign keys are checked, and the driver starts no transactions
    itself.
    """
    connection.isolation_level = None
    _keep_log(connection)
    connection.execute("PRAGMA foreign_keys = ON").close()


def _keep_log(connection: Any) -> None:
    """Turn on write-ahead logging.

    SQLite fails at once if two connections turn it on for a new file at the same time, so this function tries again.
    """
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


def upsert(connection: Connection, table: Table, keys: Sequence[str], values: Mapping[str, Any]) -> None:
    """Insert a row, or replace the row with the same values in the columns ``keys``."""
    insert_into = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    others = {name: value for name, value in values.items() if name not in keys}
    new = insert_into(table).values(values)
    connection.execute(new.on_conflict_do_update(index_elements=keys, set_=others))


# ---------------------------------------------------------------------- a database that does not answer
class Reach:
    """Remembers whether the database answers, so that not every thread waits for a database that is gone.

    While the database answers, all threads may use it. After it has not answered, only one thread at a time tries
    again, and all other threads get an error at once. If all threads tried again, each would wait for its timeout, and
    no thread would be left to answer other requests.

    Args:
        silences: The types of errors which mean that the database did not answer.
    """

    def __init__(self, *silences: type[Exception]) -> None:
        self._silences = silences
        self._mutex = threading.Lock()
        self._asked_next_at: float | None = None

    def ask(self) -> None:
        """Return normally if the calling thread may use the database now, else raise an error.

        Raises:
            StoreUnavailable: The database did not answer a moment ago, and another thread is trying again.
        """
        if self._asked_next_at is None:
            return
        with self._mutex:
            now = time.monotonic()
            if self._asked_next_at is not None and now < self._asked_next_at:
                raise StoreUnavailable(
                    "the database did not answer a moment ago, so it is not asked again yet; try again in a few seconds"
                )
            self._asked_next_at = now + _QUESTION_S

    def answered(self) -> None:
        """Record that the database answered, so that all threads may use it."""
        self._asked_next_at = None

    def failed(self, error: BaseException | None) -> None:
        """Record that a call failed.

        If the error means that the database did not answer, refuse all threads for a moment. Any other error, and None,
        count as an answer, because the database itself refused the statement.
        """
        with self._mutex:
            is_silent = isinstance(error, self._silences)
            self._asked_next_at = time.monotonic() + _REST_S if is_silent else None


def watch_file(engine: Engine, path: str) -> None:
    """Make every transaction of the engine fail after the SQLite file at ``path`` was deleted, moved or replaced.

    Otherwise, open connections would write to a file that no longer has a name, and new connections would create an
    empty file at the path.
    """
    file = _SqliteFile(path)
    event.listen(engine, "do_connect", lambda *_: file.check())
    event.listen(engine, "connect", lambda *_: file.remember())

    def before_transaction(_: Connection) -> None:
        file.check()

    event.listen(engine, "begin", before_transaction)


class _SqliteFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._first: Any = None

    def remember(self) -> None:
        self._first = self._first or self._found()

    def check(self) -> None:
        if self._first is None or (found := self._found()) == self._first:
            return
        what = "is gone" if found is None else "is another file than it was"
        raise StoreUnavailable(
            f"the database {self._path} {what}: somebody deleted, moved or replaced the file while this "
            "process used it. Put the file back, or restart the process to use the present file"
        )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino)


# ---------------------------------------------------------------------- rows that are values
def select_values(table: Table, cls: type[Any]) -> AnySelect:
    """Return the query for all rows of a table, with one column for each field of the dataclass ``cls``."""
    return select(*(table.c[field.name] for field in fields(cls))).select_from(table)


def values_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass value as a mapping from column name to value."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def one_row(connection: Connection, query: AnySelect, kind: str, key: str, names: Select[str] | None = None) -> AnyRow:
    """Return the single row that the query finds.

    Args:
        connection: An open transaction.
        query: A query that finds one row or none.
        kind: The word for such a row in the error message, like ``sweep``.
        key: The id or name of the row, for the error message.
        names: A query for all known names, from which the error suggests the most similar one; None: no suggestion.

    Raises:
        NotFound: The query finds no row.
    """
    row = connection.execute(query).one_or_none()
    if row is None:
        near = [] if names is None else get_close_matches(key, connection.scalars(names).all(), 1)
        raise NotFound(kind, key, near[0] if near else None)
    return row


# ---------------------------------------------------------------------- pages
def window(
    connection: Connection, query: AnySelect, page: Page, *, counted: AnySelect | None = None
) -> tuple[Sequence[AnyRow], int]:
    """Return the rows of one page of a query, and the number of rows of the whole query.

    ``counted`` is a cheaper query with the same number of rows, which is counted instead; None: ``query`` itself is
    counted. The count stops at some distance after the page (see ``select_total``).
    """
    rows = connection.execute(query.limit(page.limit).offset(page.offset)).all()
    if len(rows) < page.limit and (rows or not page.offset):  # it is the last page
        return rows, page.offset + len(rows)
    return rows, connection.scalars(select_total(query if counted is None else counted, page)).one()


def select_total(query: AnySelect, page: Page) -> Select[int]:
    """Return the query that counts the rows of ``query``.

    The count stops ``COUNTED_BEHIND`` rows after the end of the page.
    """
    some = query.with_only_columns(literal(1)).limit(page.offset + page.limit + COUNTED_BEHIND)
    return select(func.count()).select_from(some.subquery())
