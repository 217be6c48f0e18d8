"""Every page before axe-core, which finds what keeps people out who do not see, or see little, or use no mouse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver, app_on, serve
from tests.browser.pages import PAGES, stocked

_GRAVE = ("serious", "critical")
_TELLS_APART = "landmark-unique"
"""A moderate fault that counts as well: two parts of a page under one name lead nobody to either."""


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a service with something on every page, and what the addresses of these name."""
    driver = StoreDriver(store=memory_store())
    names = stocked(driver, 12)
    with serve(app_on(driver.store)) as address:
        yield address, names


def faults(page: Page) -> list[str]:
    """What axe finds grave on a page: the rule, and the first element that breaks it."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    grave = [fault for fault in found if fault["impact"] in _GRAVE or fault["id"] == _TELLS_APART]
    return [f"{fault['id']}: {fault['nodes'][0]['html'][:200]}" for fault in grave]


def found_on(
    browser: Browser, service: tuple[str, dict[str, str]], names: Iterable[str], scheme: Any
) -> dict[str, Any]:
    """Faults of those pages by name; pages without any are left out."""
    address, values = service
    context = browser.new_context(base_url=address, color_scheme=scheme)
    page = context.new_page()
    found = {}
    for name in names:
        page.goto(PAGES[name].format(**values))
        found[name] = faults(page)
    context.close()
    return {name: grave for name, grave in found.items() if grave}


def test_the_pages_of_every_day_keep_nobody_out(browser: Browser, service: tuple[str, dict[str, str]]) -> None:
    pages = ("home", "sweep", "trial", "trial-slow", "explore", "new", "compare")
    assert not found_on(browser, service, pages, "light")


@pytest.mark.oracle  # half a minute each
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(browser: Browser, service: tuple[str, dict[str, str]], scheme: Any) -> None:
    assert not found_on(browser, service, PAGES, scheme)
