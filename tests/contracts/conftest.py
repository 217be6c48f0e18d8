"""The stores that the contract holds for, each empty."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url

from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from autotuner.store.tables import metadata
from tests.databases import postgres_database


@pytest.fixture(scope="session")
def migrated_postgresql_url(postgres: str) -> Iterator[str]:
    with postgres_database(postgres) as url:
        migrate(url)
        yield url


@pytest.fixture(scope="session")
def cleaner(migrated_postgresql_url: str) -> Iterator[Engine]:
    url = make_url(migrated_postgresql_url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=NullPool)  # tests count connections, and end those of others
    yield engine
    engine.dispose()


@pytest.fixture
def postgresql_url(migrated_postgresql_url: str, cleaner: Engine) -> Iterator[str]:
    yield migrated_postgresql_url
    with cleaner.begin() as connection:
        connection.exec_driver_sql("; ".join(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)))


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "store.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(migrated_sqlite_file: Path, tmp_path: Path) -> str:
    copy = shutil.copy(migrated_sqlite_file, tmp_path)
    return f"sqlite:///{copy}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = open_store(database_url)
    yield opened
    opened.close()
