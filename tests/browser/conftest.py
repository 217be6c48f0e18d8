from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from autotuner.store.sql import memory_store
from tests.api.service import PlainService, StoreDriver, serve_plain

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "the dashboard is tested in a real browser: install one, for example apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def driver() -> StoreDriver:
    return StoreDriver(store=memory_store())


@pytest.fixture(scope="session")
def plain_service() -> Iterator[PlainService]:
    with serve_plain() as service:
        yield service


@pytest.fixture
def address(driver: StoreDriver, plain_service: PlainService) -> str:
    """The address of a service on the test's own store."""
    return plain_service.on(driver.store)


@pytest.fixture
def complaints() -> list[str]:
    """Errors that the browser reported; a test that expects some clears them."""
    return []


@pytest.fixture
def page(browser: Browser, address: str, complaints: list[str]) -> Iterator[Page]:
    """A page of the service; a script error or a refused resource fails the test."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    context = browser.new_context(base_url=address)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []
