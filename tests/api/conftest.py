from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.store.memory import MemoryStore
from tests.api.service import StoreDriver, app_on, serve


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def driver(store: MemoryStore) -> StoreDriver:
    return StoreDriver(store=store)


@pytest.fixture
def address(store: MemoryStore) -> Iterator[str]:
    with serve(app_on(store)) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1") as client:
        yield client
