from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.ports import Store
from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve


@pytest.fixture
def store() -> Store:
    return memory_store()


@pytest.fixture
def driver(store: Store) -> StoreDriver:
    return StoreDriver(store=store)


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    with serve(app_on(store)) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1") as client:
        yield client
