from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from autotuner.core.measurement import Measurement, PhaseTimes
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement, sweep_request, tiny_job, tiny_model


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
    rows = page.get_by_role("row").all_inner_texts()
    assert rows.index("What differs") < rows.index("How they did")
    assert [row for row in rows if row.startswith("tp")] == ["tp\t2\t1"]
    expect(page.get_by_role("img", name=re.compile("From B, .* to A, "))).to_be_visible()


def test_one_s_own_flags_are_read_and_stand_beside_a_trial(page: Page, trials: list[str]) -> None:
    page.goto(f"/compare?of={trials[0]}")
    page.get_by_label("Your own flags").fill("--pipeline-model-parallel-size 2 --micro-batch-size 1")
    page.get_by_role("button", name="Read and compare").click()
    expect(page.get_by_role("columnheader", name="B your flags")).to_be_visible()
    expect(page.get_by_role("heading", name="How your flags were read")).to_be_visible()
    page.get_by_role("link", name="Permalink").click()
    expect(page.get_by_role("columnheader", name="B a layout")).to_be_visible()


def test_what_cannot_be_compared_is_said_and_the_rest_stays(page: Page, trials: list[str]) -> None:
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
    expect(page.get_by_role("columnheader", name="A trial 0")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("% faster than")
