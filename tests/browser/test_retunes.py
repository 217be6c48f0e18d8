from __future__ import annotations

from playwright.sync_api import Page, expect

from autotuner.core.upkeep import Verdict
from tests.api.service import StoreDriver
from tests.browser.in_use import finished_run, retune, started_run


def test_retunes_are_listed_with_when_they_are_due_and_how_they_ended(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    retune(driver, "weekly", cron="0 4 * * 1", time_zone="Europe/Berlin")
    driver.store.retunes.set_paused("weekly", True, next_due_at=None)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    page.goto("/retunes")
    nightly, weekly = (page.get_by_role("row").filter(has_text=name) for name in ("nightly", "weekly"))
    expect(nightly).to_contain_text("At 02:00 every day, UTC")
    expect(nightly).to_contain_text("unchanged")
    expect(nightly).to_contain_text("25.0 %")
    expect(weekly).to_contain_text("paused")
    expect(weekly).to_contain_text("never ran")
    nightly.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nightly")


def test_a_regression_is_told_with_what_differs_and_drawn_below_its_band(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.UNCHANGED, 1000.0, "the incumbent reached 1 ktoken/s")
    page.goto("/retunes/nightly")
    expect(page.locator("#standing")).to_contain_text("unchanged")
    finished_run(driver, Verdict.REGRESSION, 929.0, "the incumbent lost 7.1 % ± 0.8", night=1)
    page.reload()
    expect(page.locator("#standing")).to_contain_text("regression")
    expect(page.locator("#standing + p")).to_have_text("The incumbent lost 7.1 % ± 0.8.")
    expect(page.locator(".said li")).to_have_text("OMP_NUM_THREADS 2 → 1")
    expect(page.locator(".trend-plot .verdict-regression rect.mean")).to_have_count(1)
    expect(page.locator(".trend-plot .verdict-unchanged circle.mean")).to_have_count(1)
    band = page.locator(".trend-plot .band").last.bounding_box()
    square = page.locator(".trend-plot rect.mean").bounding_box()
    assert band is not None
    assert square is not None
    assert square["y"] > band["y"] + band["height"]
    expect(page.locator(".trend-plot .verdict-regression title")).to_contain_text(
        "regression, 929 token/s (23.2 % MFU)"
    )
    rows = page.locator("#runs ~ div tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("The incumbent lost 7.1 %")


def test_a_run_under_way_leads_to_its_sweep(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    run = started_run(driver)
    page.goto("/retunes/nightly")
    expect(page.locator("#standing")).to_contain_text("running")
    page.locator("#runs ~ div").get_by_role("link", name=str(run.sweep_id)).click()
    expect(page).to_have_url(f"{page.url.split('/sweeps/')[0]}/sweeps/{run.sweep_id}")


def test_what_a_better_layout_does_otherwise_is_on_the_page(page: Page, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.BETTER_FOUND, 1000.0, "data 2 is 6.0 % ± 0.9 faster")
    page.goto("/retunes/nightly")
    expect(page.locator("#standing")).to_contain_text("better found")
    expect(page.locator(".said")).to_have_text("Tensor 2 → 1.")
