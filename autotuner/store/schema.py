"""The revision of the schema: the database's, the one that this program needs, and the migration between them."""

from __future__ import annotations

import sqlite3
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Literal

from alembic import command
from alembic.autogenerate.api import AutogenContext
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, Engine, column, func, select, table, update
from sqlalchemy.types import TypeDecorator

from autotuner.core.errors import StoreUnavailable
from autotuner.store.engine import make_engine, make_memory_engine, writing
from autotuner.store.tables import metadata

VERSION_TABLE = "autotuner_alembic_version"
"""Name of the table with the schema's revision. It differs from Alembic's default, because Optuna uses that name in
every database in which it keeps a study."""

_MIGRATION_LOCK = 0x6175746F  # "auto" in ASCII; any number works that no other program locks


def migrate(url: str) -> None:
    """Migrate the database in one transaction to the schema revision that this program needs. Concurrent calls wait.

    A database with a newer revision stays unchanged.

    Raises:
        InvalidInput: The URL names no SQLite or PostgreSQL database.
        StoreUnavailable: The database cannot be reached or written, or this program has no migration from its revision.
    """
    engine = make_engine(url)
    try:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            revision = current_revision(connection)
            if revision is None or is_known(revision):
                command.upgrade(alembic_config(connection), "head")
            elif refusal := why_unfit(revision):
                raise StoreUnavailable(refusal)
    finally:
        engine.dispose()


def migrate_if_embedded(url: str) -> None:
    """Migrate a SQLite file to the newest schema, so that users of one file need no separate command.

    Other databases stay unchanged; ``autotuner migrate`` migrates them.
    """
    if url.startswith("sqlite"):
        migrate(url)


def memory_engine() -> Engine:
    """Return an engine for a new SQLite database in memory that has the newest schema, for tests and short commands."""
    engine = make_memory_engine()
    with engine.connect() as new, _COPYING, _empty_database().connect() as empty:
        _of_sqlite(empty).backup(_of_sqlite(new))
    return engine


_COPYING = Lock()
"""Lock of the one connection to the empty database from which all databases in memory are copied."""


@cache
def _empty_database() -> Engine:
    """Return an empty database in memory, made once: copying its pages takes a tenth of the time of creating tables."""
    engine = make_memory_engine()
    with writing(engine) as connection:
        metadata.create_all(connection, checkfirst=False)
        _versions(connection).stamp(_directory(), head_revision())
    return engine


def _of_sqlite(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def current_revision(connection: Connection) -> str | None:
    """Return the schema revision of the database, or None before its first migration."""
    return _versions(connection).get_current_revision()


def write_again(connection: Connection, revision: str) -> None:
    """Write the stored schema revision again, to show that the database can be written. This changes nothing."""
    versions = table(VERSION_TABLE, column("version_num"))
    connection.execute(update(versions).values(version_num=revision))


def _versions(connection: Connection) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})


@cache
def head_revision() -> str:
    """Return the newest schema revision, which this program needs."""
    head = _directory().get_current_head()
    assert head is not None, "installed without its migrations"
    return head


def is_known(revision: str) -> bool:
    """Return True if this program can migrate a database of that revision to its own revision."""
    return revision in {script.revision for script in _directory().walk_revisions()}


def why_unfit(revision: str | None) -> str | None:
    """Return why this program cannot use a database with that revision, and what to do about it; None if it can.

    A newer revision does no harm, because newer revisions only add things that this program does not need. None as
    ``revision`` means that the database was never migrated.
    """
    head = head_revision()
    if revision is not None and revision >= head:
        return None
    if revision is None or is_known(revision):
        found = f"at schema revision {revision}" if revision else "not migrated"
        return f"the database is {found}, but this program needs {head}: run `autotuner migrate`"
    return (
        f"the database is at schema revision {revision}, which was written before the first release "
        f"and cannot be migrated to {head}: set AUTOTUNER_DATABASE_URL to a new database, or move "
        "the SQLite file away"
    )


def write_revision(url: str, message: str, scripts: Path | None = None) -> Path:
    """Draft the next migration script from the differences between a database and ``tables``; return its path.

    This is for developers, who then check the draft.

    Args:
        url: URL of a database with the newest revision. It is only compared, and not changed.
        message: A few words that say what the revision does. They become part of the file name.
        scripts: The folder of the migration scripts; None: ``migrations``.
    """
    engine = make_engine(url)
    try:
        with writing(engine) as connection:
            config = alembic_config(connection, scripts)
            next_id = 1 + int(ScriptDirectory.from_config(config).get_current_head() or 0)
            script = command.revision(config, message, autogenerate=True, rev_id=f"{next_id:04d}")
    finally:
        engine.dispose()
    assert isinstance(script, Script), "one head, one script"
    return Path(script.path)


def alembic_config(connection: Connection, scripts: Path | None = None) -> Config:
    """Return the Alembic configuration for one connection. The caller commits and closes the connection.

    ``scripts`` is the folder of the migration scripts; None: the installed ``migrations``.
    """
    config = Config()
    config.set_main_option("script_location", str(scripts or _scripts()).replace("%", "%%"))
    config.attributes.update(
        connection=connection, target_metadata=metadata, version_table=VERSION_TABLE, render_item=_without_our_types
    )
    return config


def _without_our_types(kind: str, item: object, _: AutogenContext) -> str | Literal[False]:
    """Return the SQL type behind one of our own types, because a revision must work without our code."""
    return f"sa.{item.impl_instance!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


@cache
def _directory() -> ScriptDirectory:
    return ScriptDirectory(str(_scripts()))


def _scripts() -> Path:
    return Path(str(files("autotuner.migrations")))
