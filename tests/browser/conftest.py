from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tests.api.conftest import address, driver, people, plain_service, store
from tests.patience import PATIENCE_S

__all__ = ["address", "driver", "people", "plain_service", "store"]  # fixtures that pages are tested with, too

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

VIEWPORT: ViewportSize = {"width": 1280, "height": 720}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "the dashboard is tested in a real browser: install one, for example apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """Errors that the browser reported; a test that expects some clears them."""
    return []


class Tab:
    """A tab of the browser that the tests at one address share: a new one takes longer than most tests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._address = ""
        self._page: Page | None = None

    def at(self, address: str) -> Page:
        """The tab, as if nobody had used it; a new one where the last was for another address, or is closed."""
        if self._page is None or self._address != address:
            self.close()
            self._page, self._address = new_page(self._browser, address), address
        return self._page

    def clean(self) -> None:
        """Leave nothing of what a test did."""
        assert self._page is not None
        self._page.evaluate("if (location.origin !== 'null') { localStorage.clear(); sessionStorage.clear(); }")
        self._page.goto("about:blank")
        self._page.set_viewport_size(VIEWPORT)
        self._page.context.clear_cookies()
        self._page.context.clear_permissions()

    def close(self) -> None:
        """Whoever comes next gets a new one."""
        if self._page is not None:
            self._page.context.close()
            self._page = None


@pytest.fixture(scope="session")
def tab(browser: Browser) -> Iterator[Tab]:
    tab = Tab(browser)
    yield tab
    tab.close()


@pytest.fixture
def page(tab: Tab, address: str, complaints: list[str]) -> Iterator[Page]:
    """A page of the service; a script error or a refused resource fails the test."""
    page = tab.at(address)
    with watched(page, complaints):
        try:
            yield page
            tab.clean()
        except PlaywrightError:
            tab.close()
            raise
    assert complaints == []


@pytest.fixture
def own_page(browser: Browser, address: str, complaints: list[str]) -> Iterator[Page]:
    """A page in a tab that nobody used and nobody will: for what cannot be undone, such as another clock."""
    page = new_page(browser, address)
    with watched(page, complaints):
        yield page
        page.context.close()
    assert complaints == []


@pytest.fixture
def plain_page(browser: Browser, address: str) -> Iterator[Page]:
    """A page where no script runs."""
    page = new_page(browser, address, java_script_enabled=False)
    yield page
    page.context.close()


def new_page(browser: Browser, address: str, *, java_script_enabled: bool = True) -> Page:
    context = browser.new_context(base_url=address, viewport=VIEWPORT, java_script_enabled=java_script_enabled)
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    expect.set_options(timeout=1000 * PATIENCE_S)
    return page


@contextmanager
def watched(page: Page, complaints: list[str]) -> Iterator[None]:
    """Note what the browser complains of meanwhile."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def on_error(error: PlaywrightError) -> None:
        complaints.append(str(error))

    page.on("console", on_console)
    page.on("pageerror", on_error)
    yield
    page.remove_listener("console", on_console)
    page.remove_listener("pageerror", on_error)
