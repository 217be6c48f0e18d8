"""The lists of sweeps, the search, and comparisons, in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from autotuner.core.health import KnownWorker
from autotuner.core.measurement import Measurement, PhaseTimes
from autotuner.core.upkeep import RegressionGateOutcome
from tests.api.service import NOW, StoreDriver
from tests.browser.stores import finished_gate
from tests.builders import cpu_layout, measurement, sweep_request, tiny_job, tiny_model

# ---------------------------------------------------------------- home


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
    page.get_by_role("link", name="best MFU").click()
    expect(page.get_by_role("columnheader", name="best MFU")).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["fast llama", "slow llama"]
    page.get_by_role("link", name="best MFU").click()
    expect(page).to_have_url(re.compile(r"sort=mfu&order=ascending"))
    assert names(page) == ["slow llama", "fast llama"]
    page.goto("/?q=llama&owner=nobody")
    page.get_by_role("link", name="without owner nobody").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_a_half_typed_text_survives_a_change_of_the_list(own_page: Page, driver: StoreDriver) -> None:
    driver.sweep()
    own_page.clock.install()
    own_page.goto("/")
    own_page.get_by_label("Words of sweep").fill("llam")
    (run,) = driver.store.runs.list("sweep")[0]
    driver.finish(driver.store.get_sweep(run.id))
    own_page.clock.run_for(10_000)  # longer than until the next look
    expect(own_page.get_by_label("Words of sweep")).to_have_value("llam")


def test_incidents_stand_on_top_and_link_to_their_pages(page: Page, driver: StoreDriver) -> None:
    gate = finished_gate(driver, RegressionGateOutcome.FAILED, 940.0, "6 % slower")
    page.goto("/")
    line = page.get_by_role("row").filter(has_text="gate failed")
    expect(line).to_contain_text("pull request 7")
    expect(line).to_contain_text("6 % slower")
    line.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/gates/{gate.id}"))


# ---------------------------------------------------------------- find


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


def test_a_search_without_results_shows_examples_of_searches(page: Page) -> None:
    page.goto("/find?q=<b>nothing</b>")
    expect(page.get_by_role("heading", level=1)).to_have_text("Found for “<b>nothing</b>”")
    expect(page.get_by_role("heading", name="Nothing was found")).to_be_visible()
    expect(page.get_by_text("tp4 pp2 recompute-full")).to_be_visible()


# ---------------------------------------------------------------- compare


@pytest.fixture
def trials(driver: StoreDriver) -> list[str]:
    sweep = driver.sweep(sweep_request(name="nightly"))
    layouts = (cpu_layout(tensor_parallel_degree=2), cpu_layout(data_parallel_replicate_degree=2))
    return [driver.ended(sweep, number, slower(number + 1), layout).id for number, layout in enumerate(layouts)]


def slower(times: int) -> Measurement:
    """A measurement whose step and whose passes take so many times as long."""
    phases = PhaseTimes(forward_backward_s=times - 0.1, gradient_sync_s=0.05, optimizer_s=0.05)
    return measurement(mfu=0.4 / times, step_time_s=float(times), phases=phases)


def test_one_finds_what_to_compare_and_sees_the_differences_first(page: Page, trials: list[str]) -> None:
    page.goto(f"/compare?of={trials[0]}")
    page.get_by_role("checkbox", name="trial 1").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page).to_have_url(re.compile(rf"of={trials[0]}&of={trials[1]}"))
    expect(page.get_by_role("heading", level=1)).to_have_text("A is 100.0 % faster than B")
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings.index("What differs") < headings.index("Results")
    rows = page.get_by_role("row").all_inner_texts()
    assert [row for row in rows if row.startswith("tp")] == ["tp\t2\t1"]
    expect(page.get_by_role("img", name=re.compile("From B, .* to A, "))).to_be_visible()


def test_one_s_own_flags_are_read_and_stand_beside_a_trial(page: Page, trials: list[str]) -> None:
    page.goto(f"/compare?of={trials[0]}")
    page.get_by_label("Your own flags").fill("--pipeline-model-parallel-size 2 --micro-batch-size 1")
    page.get_by_role("button", name="Read and compare").click()
    expect(page.get_by_role("row", name="B your flags")).to_be_visible()
    expect(page.get_by_role("heading", name="How your flags were read")).to_be_visible()
    page.get_by_role("link", name="Permalink").click()
    expect(page.get_by_role("row", name="B a layout")).to_be_visible()


def test_a_layout_that_cannot_be_compared_is_named_and_the_others_stay(page: Page, trials: list[str]) -> None:
    page.goto(f"/compare?of={trials[0]}&of=tp3<b>&of={trials[1]}")
    expect(page.get_by_role("alert")).to_contain_text("tp3<b>")
    expect(page.get_by_role("heading", level=1)).to_have_text("A is 100.0 % faster than B")
    assert page.locator("main b b").count() == 0


def test_only_sweeps_of_one_model_are_chosen_beforehand(page: Page, driver: StoreDriver) -> None:
    other = sweep_request(name="other", job=tiny_job(model=tiny_model(name="another")))
    for request in (sweep_request(name="first"), other, sweep_request(name="third")):
        sweep = driver.sweep(request)
        driver.ended(sweep, 0, measurement())
        driver.finish(sweep)
    page.goto("/compare")
    for name, is_chosen in (("first", True), ("other", False), ("third", True)):
        expect(page.get_by_role("checkbox", name=name)).to_be_checked(checked=is_chosen)


def test_without_anything_the_page_offers_the_best_of_sweeps(page: Page, driver: StoreDriver) -> None:
    for name, mfu in (("first", 0.2), ("second", 0.4)):
        sweep = driver.sweep(sweep_request(name=name))
        driver.ended(sweep, 0, measurement(mfu=mfu, step_time_s=1 / mfu))
        driver.finish(sweep)
    page.goto("/compare")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="A trial 0")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("% faster than")
