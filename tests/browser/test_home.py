from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from autotuner.core.run import KnownWorker
from autotuner.core.upkeep import MfuGateOutcome
from tests.api.service import NOW, StoreDriver
from tests.browser.in_use import finished_gate
from tests.builders import measurement, sweep_request


@pytest.fixture(autouse=True)
def living_worker(driver: StoreDriver) -> None:
    driver.store.health.tell(KnownWorker(name="node1", version="1", started_at=NOW, seen_at=NOW))


def names(page: Page) -> list[str]:
    return page.locator("tbody th a").all_inner_texts()


def test_without_a_sweep_the_page_says_how_to_start_one(page: Page, address: str) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="No sweep yet")).to_be_visible()
    expect(page.get_by_role("link", name="Start a sweep")).to_have_attribute("href", "/new")
    page.get_by_text("From the command line").click()
    expect(page.locator("pre").nth(0)).to_contain_text("autotuner sweep --model llama-demo --cluster local")
    expect(page.locator("pre").nth(1)).to_contain_text(f"curl {address}/api/v1/sweeps")


def test_a_new_sweep_appears_in_the_list_by_itself(page: Page, driver: StoreDriver) -> None:
    page.goto("/")
    driver.sweep(sweep_request(name="nightly"))
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("tiny")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nightly")


def test_sweeps_are_searched_filtered_and_ordered_by_address(page: Page, driver: StoreDriver) -> None:
    for name, mfu in (("slow llama", 0.2), ("fast llama", 0.4), ("gpt", 0.3)):
        sweep = driver.sweep(sweep_request(name=name))
        driver.ended(sweep, 0, measurement(mfu=mfu))
        driver.finish(sweep)
    driver.sweep(sweep_request(name="llama that runs"))
    page.goto("/")
    page.get_by_label("Words of sweep").fill("llama")
    page.get_by_label("State").select_option("complete")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile(r"/\?q=llama&state=complete"))
    page.get_by_role("link", name="best MFU, %").click()
    expect(page.get_by_role("columnheader", name="best MFU, %")).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["fast llama", "slow llama"]
    page.get_by_role("link", name="best MFU, %").click()
    expect(page).to_have_url(re.compile(r"sort=mfu&order=ascending"))
    assert names(page) == ["slow llama", "fast llama"]
    page.goto("/?q=llama&owner=nobody")
    page.get_by_role("link", name="without owner nobody").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_what_is_being_typed_is_not_lost_while_the_list_changes(own_page: Page, driver: StoreDriver) -> None:
    driver.sweep()
    own_page.clock.install()
    own_page.goto("/")
    own_page.get_by_label("Words of sweep").fill("llam")
    (run,) = driver.store.runs.list("sweep")[0]
    driver.finish(driver.store.get_sweep(run.id))
    own_page.clock.run_for(10_000)  # longer than until the next look
    expect(own_page.get_by_label("Words of sweep")).to_have_value("llam")


def test_what_needs_attention_stands_on_top_and_leads_there(page: Page, driver: StoreDriver) -> None:
    gate = finished_gate(driver, MfuGateOutcome.FAILED, 940.0, "6 % slower")
    page.goto("/")
    line = page.get_by_role("listitem").filter(has_text="gate failed")
    expect(line).to_contain_text("pull request 7 6 % slower")
    line.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/gates/{gate.id}"))
