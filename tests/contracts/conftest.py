"""The stores that the contract holds for, each empty."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url

from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from autotuner.store.tables import metadata
from tests.databases import postgres_database


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "store.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(migrated_sqlite_file: Path, tmp_path: Path) -> str:
    """A file of the test's own, to fill or destroy."""
    copy = shutil.copy(migrated_sqlite_file, tmp_path)
    return f"sqlite:///{copy}"


@dataclass(frozen=True, slots=True)
class Shared:
    """A migrated database that all tests share, one after the other, and a store on it that knows all statements."""

    url: str
    store: Store
    cleaner: Engine

    def empty(self) -> None:
        with self.cleaner.begin() as connection:
            if connection.dialect.name == "postgresql":  # one round trip
                connection.exec_driver_sql("; ".join(_DELETIONS))
            else:
                for deletion in _DELETIONS:
                    connection.exec_driver_sql(deletion)


_DELETIONS = [f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)]


@contextmanager
def shared(url: str, cleaned: URL) -> Iterator[Shared]:
    opened = open_store(url)
    cleaner = create_engine(cleaned, poolclass=NullPool)  # tests count connections, and end those of others
    yield Shared(url, opened, cleaner)
    cleaner.dispose()
    opened.close()


@pytest.fixture(scope="session")
def shared_sqlite(migrated_sqlite_file: Path) -> Iterator[Shared]:
    url = f"sqlite:///{shutil.copy(migrated_sqlite_file, migrated_sqlite_file.with_name('shared.db'))}"
    with shared(url, make_url(url)) as database:
        yield database


@pytest.fixture(scope="session")
def shared_postgresql(postgres: str) -> Iterator[Shared]:
    with postgres_database(postgres) as url:
        migrate(url)
        with shared(url, make_url(url).set(drivername="postgresql+psycopg")) as database:
            yield database


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Shared]:
    found: Shared = request.getfixturevalue(f"shared_{request.param}")
    yield found
    found.empty()


@pytest.fixture
def postgresql_url(shared_postgresql: Shared) -> Iterator[str]:
    yield shared_postgresql.url
    shared_postgresql.empty()


@pytest.fixture
def database_url(database: Shared) -> str:
    """A migrated database."""
    return database.url


@pytest.fixture
def store(database: Shared) -> Store:
    return database.store
