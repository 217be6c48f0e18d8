from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Page, expect

from autotuner.core.upkeep import MfuGateOutcome
from tests.api.service import StoreDriver
from tests.browser.in_use import INCUMBENT, finished_gate, queued_gate


def test_gates_are_listed_with_how_they_ended_beside_their_baselines(page: Page, driver: StoreDriver) -> None:
    passed = finished_gate(driver, MfuGateOutcome.PASSED, 1004.0, "within 2 % of main", software="pull request 6")
    waiting = queued_gate(driver)
    page.goto("/gates")
    rows = page.locator("section[aria-label=Gates] tbody tr")
    expect(rows.filter(has_text=passed.id)).to_contain_text("passed")
    expect(rows.filter(has_text=passed.id)).to_contain_text("+0.4 %")
    expect(rows.filter(has_text=passed.id)).to_contain_text("pull request 6")
    expect(rows.filter(has_text=waiting.id)).to_contain_text("running")
    baseline = page.locator("#baselines + div tbody tr")
    expect(baseline).to_contain_text("main")
    expect(baseline).to_contain_text("1,002 token/s")
    expect(baseline).to_contain_text("6 in 2 sittings")
    baseline.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(passed.id)


def test_a_gate_that_failed_says_by_how_much_beside_what_and_what_differs(page: Page, driver: StoreDriver) -> None:
    gate = finished_gate(driver, MfuGateOutcome.FAILED, 939.0, "6.1 % ± 0.8 slower than main")
    page.goto(f"/gates/{gate.id}")
    expect(page.locator("#standing")).to_contain_text("failed")
    expect(page.locator("#standing + p")).to_have_text("6.1 % ± 0.8 slower than main.")
    expect(page.locator(".facts")).to_contain_text("−6.1 % −6.9 % to −5.3 %")
    rows = page.locator("#runs + div tbody tr")
    expect(rows.first).to_contain_text("this change3939 token/s")
    expect(rows.nth(1)).to_contain_text("main31,000 token/s")
    expect(page.locator("#changes + ul li")).to_have_text("OMP_NUM_THREADS 2 → 1")


def test_a_gate_shows_the_layout_of_its_baseline_where_it_is_another_one(page: Page, driver: StoreDriver) -> None:
    other = replace(INCUMBENT, micro_batch_size=4)
    gate = finished_gate(driver, MfuGateOutcome.FAILED, 939.0, "6.1 % ± 0.8 slower than main", held_to=other)
    page.goto(f"/gates/{gate.id}")
    expect(page.get_by_text("The baseline has another layout:")).to_be_visible()
    expect(page.locator("#live")).to_contain_text(str(other))


def test_the_page_of_a_gate_follows_it(page: Page, driver: StoreDriver) -> None:
    gate = queued_gate(driver)
    page.goto(f"/gates/{gate.id}")
    expect(page.locator("#standing")).to_contain_text("running")
    expect(page.locator("#live")).to_contain_text("tp2")
    expect(page.get_by_role("link", name=str(gate.sweep_id))).to_be_visible()
