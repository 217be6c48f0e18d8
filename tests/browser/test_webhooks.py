from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from autotuner.core.run import RunState
from tests.announcements import AT, announcement, webhook
from tests.api.service import StoreDriver
from tests.runs import claimed, end


def test_deliveries_are_shown_with_what_they_tell_and_by_their_state(page: Page, driver: StoreDriver) -> None:
    store = driver.store.announcements
    store.save_webhook(webhook(url="https://hooks.example.com/credential"))
    store.announce(announcement())
    end(driver.store, claimed(driver.store, "delivery", now=AT), RunState.FAILED, "HTTP 404 Not Found", now=AT)
    store.announce(replace(announcement(), id="an-2", title="weekly: unchanged", path="/retunes/weekly"))
    page.goto("/webhooks")
    expect(page.locator("main")).not_to_contain_text("credential")
    hook = page.get_by_role("row").filter(has_text="everything")
    expect(hook).to_contain_text("https://hooks.example.com")
    rows = page.locator("#deliveries ~ div tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="weekly")).to_contain_text("pending")
    page.get_by_role("link", name="given up").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("HTTP 404 Not Found")
    expect(page.locator("#deliveries ~ div caption")).to_contain_text("autotuner webhook send-again ID")
    expect(rows.get_by_role("link")).to_have_attribute("href", "/retunes/nightly")


def test_many_deliveries_are_turned_over_by_pages(page: Page, driver: StoreDriver) -> None:
    store = driver.store.announcements
    store.save_webhook(webhook())
    for number in range(30):
        store.announce(replace(announcement(), id=f"an-{number}", title=f"told {number}", at=AT + number))
    page.goto("/webhooks?state=pending")
    rows = page.locator("#deliveries ~ div tbody tr")
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(5)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(25)
