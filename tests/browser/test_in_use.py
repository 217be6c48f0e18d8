"""What pages of layouts in use have in common."""

from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from autotuner.core.upkeep import MfuGateOutcome, Verdict
from tests.announcements import announcement, webhook
from tests.api.service import StoreDriver
from tests.browser.in_use import finished_gate, finished_run, retune
from tests.builders import cpu_cluster, sweep_request, tiny_job


def test_an_empty_page_says_how_to_begin(page: Page, address: str) -> None:
    page.goto("/")
    for name, heading, command in (
        ("Retunes", "No retune yet", "autotuner retune add nightly"),
        ("Gates", "No gate yet", "--set-baseline"),
        ("Webhooks", "No webhook yet", "autotuner webhook add ours https://hooks.example.com/autotuner"),
    ):
        if not (link := page.get_by_role("link", name=name)).is_visible():
            page.get_by_text("More", exact=True).click()
        link.click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        expect(page.locator("pre")).to_contain_text(command)
        expect(page.locator("pre")).to_contain_text(f"--server {address}")


def test_the_pages_fit_a_phone(page: Page, driver: StoreDriver) -> None:
    retune(driver, "n" * 80)
    for night in range(9):
        finished_run(driver, Verdict.UNCHANGED, 1000.0 + night, "word " * 60 + "x" * 200, "n" * 80, night)
    gate = finished_gate(driver, MfuGateOutcome.PASSED, 1000.0, "x" * 300, software="s" * 120)
    driver.store.announcements.save_webhook(webhook(name="w" * 100, url=f"https://{'h' * 60}.example.com/"))
    driver.store.announcements.announce(replace(announcement(), title="t" * 200))
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/retunes", f"/retunes/{'n' * 80}", "/gates", f"/gates/{gate.id}", "/webhooks"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


def test_figures_that_are_simulated_are_never_called_measured(page: Page, driver: StoreDriver) -> None:
    simulated = sweep_request(job=tiny_job(cluster=cpu_cluster(engine="simulated")))
    retune(driver, template=simulated)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    gate = finished_gate(driver, MfuGateOutcome.PASSED, 1000.0, "within 2 % of main", sweep=simulated)
    for path in ("/retunes", "/retunes/nightly", "/gates", f"/gates/{gate.id}"):
        page.goto(path)
        expect(page.locator(".simulated").first).to_be_visible()
        expect(page.locator(".measured, .measured-tag")).to_have_count(0)
