from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.store.sql import Store, memory_store
from tests.api.access import People
from tests.api.service import PlainService, StoreDriver, app_on, serve, serve_plain


@pytest.fixture
def store() -> Store:
    return memory_store()


@pytest.fixture
def driver(store: Store) -> StoreDriver:
    return StoreDriver(store=store)


@pytest.fixture(scope="session")
def plain_service() -> Iterator[PlainService]:
    with serve_plain() as service:
        yield service


@pytest.fixture
def address(store: Store, plain_service: PlainService) -> str:
    """The address of a service on the test's own store."""
    return plain_service.on(store)


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client


@pytest.fixture
def browser(address: str) -> Iterator[httpx.Client]:
    """Somebody who asks for pages."""
    page = {"Accept": "text/html"}
    with httpx.Client(base_url=address, headers=page, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    """Callers of one service for all tests of a file: the first request to each takes as long as many others."""
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        yield People(app=app, address=address)
