"""The page of a sweep while it runs, and what people change of it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from autotuner.core.run import RunState
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_layout, failure, measurement


def test_the_page_follows_a_sweep_to_its_end_without_a_reload(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#live")).to_contain_text("no trial is complete yet")
    page.evaluate("window.unreloaded = true")

    trial = driver.running(sweep, 0)
    under_way = page.locator("section").filter(has=page.get_by_role("heading", name="Under way"))
    expect(under_way).to_contain_text("step 1, measuring")
    driver.step(trial, 1)
    expect(under_way).to_contain_text("step 2, measuring")
    driver.end(trial, measurement(mfu=0.25))
    expect(page.locator(".ranking:not(.pencil) tbody tr")).to_have_count(1)
    driver.ended(sweep, 1, measurement(mfu=0.35))
    expect(page.locator(".ranking tbody td.measured").first).to_contain_text("35.0")
    driver.finish(sweep)
    expect(page.locator("#connection")).to_have_text("Finished")
    expect(page.locator("#stopped")).to_contain_text("trial budget")
    assert page.evaluate("window.unreloaded")


def test_a_page_follows_a_sweep_that_was_opened_again_past_its_first_end(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    driver.store.control.change_budget(sweep.id, {"num_trials": 9}, now=NOW + 90)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing .state")).to_have_text("queued")
    page.wait_for_timeout(1500)  # longer than a page waits for more behind an end
    driver.store.control.pause(sweep.id, now=NOW + 95)
    expect(page.locator("#standing .state")).to_have_text("paused")
    driver.store.request_cancel(sweep.id, now=NOW + 99)
    expect(page.locator("#connection")).to_have_text("Finished")


def test_a_finished_sweep_is_shown_whole(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing")).to_contain_text("complete")
    expect(page.locator("#live")).to_contain_text("4 of 4 trials ran")
    for heading in ("Best so far", "MFU against memory", "Were the predictions right?"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()


def test_an_open_log_and_the_focus_stay_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    first = driver.ended(sweep, 0)
    driver.ended(sweep, 1, failure(log_tail="tried to allocate 1.2 GB"), cpu_layout(micro_batch_size=2))
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("The trial with its log").click()
    page.get_by_text("Log of rank 1").click()
    log = page.get_by_text("tried to allocate 1.2 GB")
    expect(log).to_be_visible()
    page.locator(f"#trial-{first.id}").focus()
    driver.ended(sweep, 2, measurement(mfu=0.1), cpu_layout(micro_batch_size=4))
    expect(page.locator(".ranking tbody tr")).to_have_count(2)
    expect(page.locator(f"#trial-{first.id}")).to_be_focused()
    expect(log).to_be_visible()


def test_what_is_typed_and_chosen_stays_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    page.goto(f"/sweeps/{sweep.id}?sort=-mb")
    page.get_by_label("Keep rows").press_sequentially("mb>")
    page.evaluate("document.getElementById('columns').open = true")
    driver.ended(sweep, 1, measurement(mfu=0.1), cpu_layout(micro_batch_size=4))
    expect(page.locator(".ranking tbody tr")).to_have_count(2)
    expect(page.locator(".ranking tbody td.trial a").first).to_have_text("1")  # by micro-batch, as the address says
    expect(page.get_by_label("Keep rows")).to_have_value("mb>")
    expect(page.get_by_label("Keep rows")).to_be_focused()
    expect(page.locator("#columns fieldset")).to_be_visible()


def test_pieces_that_say_the_same_are_not_touched(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    trial = driver.running(sweep, 1, cpu_layout(micro_batch_size=4))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    driver.step(trial, 1)
    expect(page.locator("#live")).to_contain_text("step 2, measuring")
    page.evaluate(
        "document.querySelector('.ranking tbody tr').kept = document.querySelector('section.answer').kept = true"
    )
    driver.step(trial, 2)
    expect(page.locator("#live")).to_contain_text("step 3, measuring")
    assert page.evaluate(
        "document.querySelector('.ranking tbody tr').kept && document.querySelector('section.answer').kept"
    )


def test_a_sweep_is_paused_resumed_given_more_and_cancelled_from_its_page(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("Open it again with a larger budget").click()
    page.get_by_label("Trials", exact=True).fill("9")
    page.get_by_role("button", name="Open again").click()
    expect(page.locator("#standing .state")).to_have_text("queued")
    assert driver.store.get_sweep(sweep.id).request.budget.num_trials == 9
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#standing .state")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#standing .state")).to_have_text("queued")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#standing .state")).to_have_text("cancelled")
    assert driver.store.get_sweep(sweep.id).state is RunState.CANCELLED


def test_a_budget_that_is_refused_says_why_on_the_page(page: Page, driver: StoreDriver, complaints: list[str]) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    page.get_by_text("Change its budget").click()
    page.get_by_label("Trials", exact=True).fill("many")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_contain_text("num_trials = 'many': must be a number.", ignore_case=True)
    complaints.clear()  # the browser reports the 422
