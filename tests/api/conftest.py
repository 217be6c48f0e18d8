from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from api.live import LiveEvents
from api.main import create_app
from api.previews import Previews
from autotuner.ports import Store
from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve_asgi


@pytest.fixture
def store() -> Store:
    return memory_store()


@pytest.fixture
def driver(store: Store) -> StoreDriver:
    return StoreDriver(store=store)


@pytest.fixture(scope="session")
def plain_service() -> Iterator[tuple[FastAPI, str]]:
    """A service without a login and its address: to start one takes longer than most tests."""
    api = create_app(app_on(memory_store()))
    with serve_asgi(api) as address:
        yield api, address


@pytest.fixture
def address(store: Store, plain_service: tuple[FastAPI, str]) -> str:
    """The address of a service on the test's own store."""
    api, address = plain_service
    api.state.autotuner = app_on(store)
    api.state.live_events = LiveEvents(api.state.autotuner.open)
    api.state.previews = Previews()
    return address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client
