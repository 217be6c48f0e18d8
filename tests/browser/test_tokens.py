"""Tokens handed out and taken back on a page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from autotuner.core.access import Scope
from autotuner.store.sql import memory_store
from tests.api.access import People, bearing
from tests.api.service import app_on, serve
from tests.browser.test_login import log_in
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        yield People(app=app, address=address)


@pytest.fixture
def address(people: People) -> str:
    return people.address


def test_an_admin_makes_a_token_that_lets_in_and_takes_it_back(
    page: Page, people: People, complaints: list[str]
) -> None:
    page.goto("/tokens")
    log_in(page, people.token(Scope.ADMIN, "root"))
    page.get_by_label("For whom or what").fill("ci0")  # no id holds a 0
    page.get_by_label("Scope").select_option("read")
    page.get_by_label("Unfinished sweeps").fill("two")
    page.get_by_role("button", name="Make a token").click()
    expect(page.get_by_role("alert")).to_contain_text("must be a number")
    expect(page.get_by_label("For whom or what")).to_have_value("ci0")
    page.get_by_label("Unfinished sweeps").fill("2")
    page.get_by_role("button", name="Make a token").click()
    text = page.locator("pre").inner_text()
    sweeps = f"{people.address}/api/v1/sweeps"
    assert httpx.get(sweeps, headers=bearing(text), timeout=PATIENCE_S).status_code == 200
    row = page.get_by_role("row").filter(has_text="ci0").first
    expect(row).to_contain_text("2 sweeps")
    page.goto("/tokens")
    expect(page.locator("pre")).to_have_count(0)
    page.get_by_role("button", name="of ci0").click()
    expect(page.get_by_role("row").filter(has_text="ci0").first).to_contain_text("taken back")
    assert httpx.get(sweeps, headers=bearing(text), timeout=PATIENCE_S).status_code == 401
    complaints[:] = [one for one in complaints if "422" not in one and "401" not in one]
