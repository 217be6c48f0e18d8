from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement, sweep_request


def test_a_key_leads_to_the_search_and_that_to_trials_of_such_layouts(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(name="nightly"))
    trial = driver.ended(sweep, 0, measurement(mfu=0.4), cpu_layout(tensor_parallel_degree=2))
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("tp2 nightly")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/find\?q=tp2\+nightly"))
    expect(page.get_by_role("row").nth(1)).to_contain_text("40.0")
    page.get_by_role("link", name="trial 0").click()
    expect(page).to_have_url(re.compile(f"/trials/{trial.id}"))


def test_what_nothing_is_called_says_what_can_be_found(page: Page) -> None:
    page.goto("/find?q=<b>nothing</b>")
    expect(page.get_by_role("heading", level=1)).to_have_text("Found for “<b>nothing</b>”")
    expect(page.get_by_role("heading", name="Nothing is called so")).to_be_visible()
    expect(page.get_by_text("tp4 pp2 recompute-full")).to_be_visible()
