"""What tests in several folders need once per session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a real PostgreSQL server, started for the first test that asks."""
    with postgres_server() as url:
        yield url
