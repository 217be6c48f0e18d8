from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from autotuner.core.access import AuditEntry, Caller, Scope
from tests.api.service import NOW, StoreDriver
from tests.builders import sweep_request

ENTRY = AuditEntry(
    at=NOW,
    caller="ada",
    token_id="k3v7q2mxn5",
    action="create_sweep",
    subject="/api/v1/sweeps",
    status=201,
    request_id="r-1",
    address="10.0.0.3",
)


def test_the_audit_log_is_shown_newest_first_and_of_one_caller(page: Page, driver: StoreDriver) -> None:
    page.goto("/audit")
    expect(page.get_by_role("heading", name="Nothing was changed or refused yet")).to_be_visible()
    driver.store.access.record(ENTRY)
    refused = replace(ENTRY, at=NOW + 60, caller="<b>bob</b>", action="cancel_sweep", status=403)
    driver.store.access.record(refused)
    page.reload()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("<b>bob</b>")
    expect(rows.first).to_contain_text("refused")
    page.get_by_role("link", name="ada").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("create sweep")
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log of ada")
    page.get_by_role("link", name="everybody").click()
    expect(rows).to_have_count(2)


def test_pages_say_who_asked_for_a_sweep(page: Page, driver: StoreDriver) -> None:
    caller = Caller(name="ada", scope=Scope.RUN)
    sweep, _ = driver.store.create_sweep(sweep_request(), now=NOW, caller=caller)
    page.goto("/")
    expect(page.locator("tbody tr")).to_contain_text("ada")
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("main")).to_contain_text("by ada")
