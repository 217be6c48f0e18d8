from __future__ import annotations

from playwright.sync_api import Page, expect

from autotuner.domain.trial import Stopped
from tests.api.service import StoreDriver
from tests.builders import failure, measurement, sweep_request, tiny_job, tiny_model


def test_without_a_sweep_the_page_says_how_to_start_one(page: Page, address: str) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="No sweep yet")).to_be_visible()
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


def test_the_ranking_shows_measured_beside_predicted_and_says_which_is_which(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(
        sweep, 0, measurement(mfu=0.25, step_time_s=0.5, step_time_spread_s=0.02, peak_bytes=(10**7, 9 * 10**6))
    )
    page.goto(f"/sweeps/{sweep.id}")
    table = page.get_by_role("table")
    expect(table.locator("th[scope=colgroup]")).to_have_text(["MFU", "Step time", "Peak memory per rank", "Throughput"])
    expect(table.locator("thead tr").nth(1).locator("th")).to_have_text(["measured", "predicted"] * 3 + ["measured"])
    cells = table.locator("tbody tr").first.locator("td")
    expect(cells).to_have_text(
        ["1", "25.0 %", "40.0 %", "500 ms± 10 ms", "1.36 sunvalidated", "10 MB", "5.2 MB", "1.02 ktoken/s"]
    )
    expect(table.locator("tbody th")).to_have_text("tensor 2 · micro-batch 1 · fp32 · math attention")


def test_the_expected_error_stands_beside_a_validated_prediction(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.queued(sweep, 0, relative_error=0.12)
    driver.store.start_trial(trial.id, owner=driver.owner, now=1.0)
    driver.end(trial)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("tbody tr").first).to_contain_text("± 12 %")


def test_the_page_follows_a_sweep_to_its_end_without_a_reload(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#live")).to_contain_text("No trial is complete yet")
    page.evaluate("window.unreloaded = true")

    trial = driver.running(sweep, 0)
    expect(page.get_by_role("listitem")).to_contain_text("step 1 of 7")
    driver.step(trial, 1)
    expect(page.get_by_role("listitem")).to_contain_text("step 2 of 7")
    driver.end(trial, measurement(mfu=0.25))
    expect(page.locator("tbody tr")).to_have_count(1)
    driver.ended(sweep, 1, measurement(mfu=0.35))
    expect(page.locator("tbody tr").first).to_contain_text("35.0 %")
    driver.finish(sweep)
    expect(page.locator("#connection")).to_have_text("Finished")
    expect(page.locator("#standing")).to_contain_text("trial budget")
    assert page.evaluate("window.unreloaded")


def test_a_finished_sweep_is_shown_whole(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.25))
    driver.finish(sweep)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#standing")).to_contain_text("complete")
    expect(page.locator("#live")).to_contain_text("4 of 4 trials ran")
    expect(page.locator("circle.point")).to_have_count(1)


def test_failures_show_their_kind_and_an_open_log_stays_open_while_the_page_changes(
    page: Page, driver: StoreDriver
) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, failure(log_tail="tried to allocate 1.2 GB"))
    driver.ended(sweep, 1, Stopped(reason="pruned"))
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#ended + div tbody tr")).to_have_count(2)
    expect(page.locator("#ended + div")).to_contain_text("oom: rank 1 ran out of memory")
    page.get_by_text("Log of rank 1").click()
    log = page.get_by_text("tried to allocate 1.2 GB")
    expect(log).to_be_visible()
    driver.ended(sweep, 2)
    expect(page.locator("#ranking + div tbody tr")).to_have_count(1)
    expect(log).to_be_visible()


def test_the_focus_stays_where_it_was_while_the_page_changes(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    first = driver.ended(sweep, 0)
    page.goto(f"/sweeps/{sweep.id}")
    page.locator(f"#trial-{first.id}").focus()
    driver.ended(sweep, 1)
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(f"#trial-{first.id}")).to_be_focused()


def test_what_a_caller_wrote_is_shown_and_never_run(page: Page, driver: StoreDriver) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    sweep = driver.sweep(sweep_request(name=attack, job=tiny_job(model=tiny_model(name=attack))))
    driver.ended(sweep, 0, failure(message=attack, log_tail=attack))
    page.goto("/")
    expect(page.get_by_role("row").nth(1)).to_contain_text(attack)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(attack)
    driver.ended(sweep, 1, failure(message=attack))  # once more through the script that redraws
    expect(page.locator("#ended + div tbody tr")).to_have_count(2)
    expect(page.locator("#ended + div tbody tr").nth(1)).to_contain_text(attack)
    assert page.locator("main script, main img").count() == 0
    assert "taken" not in page.title().replace(attack, "")


def test_an_unknown_sweep_is_a_page_that_leads_back(page: Page, complaints: list[str]) -> None:
    answer = page.goto("/sweeps/sw-none")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    page.get_by_role("link", name="All sweeps").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sweeps")
    complaints.clear()  # the browser reports the 404 that this test is about


def test_nothing_is_loaded_from_elsewhere(page: Page, driver: StoreDriver, address: str) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#connection")).to_have_text("Live")
    assert asked
    assert all(url.startswith(address) for url in asked)


def test_the_page_fits_a_phone(page: Page, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    driver.ended(sweep, 1, failure(log_tail="x" * 500))
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#ended")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
