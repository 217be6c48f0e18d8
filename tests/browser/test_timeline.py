"""The timeline of a step, looked at closer: with links, with keys, with the wheel, and without script."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement, step_timeline

DEEP = "/explore?layout=zero2+tp8+pp4+1f1b+mb1+sp+flash+bf16&global_batch_size=256"


def first_block(page: Page) -> str:
    """Where the first forward of the first lane lies, as the picture says it."""
    found = page.locator("#timeline-section svg path.forward").first.get_attribute("d")
    assert found is not None
    return found.split("z")[0]


def test_a_link_looks_closer_without_another_page_and_the_address_says_where(page: Page) -> None:
    page.goto(DEEP)
    page.evaluate("window.isSame = true")
    whole = first_block(page)
    page.get_by_role("link", name="Closer").click()
    expect(page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(page.get_by_role("link", name="Later")).to_be_visible()
    assert first_block(page) != whole
    assert page.evaluate("window.isSame")
    expect(page.get_by_role("link", name="Closer")).to_be_focused()
    page.reload()
    expect(page.get_by_role("link", name="Farther")).to_be_visible()


def test_keys_and_the_wheel_with_control_do_what_the_links_do(page: Page) -> None:
    page.goto(DEEP)
    picture = page.locator("[data-zoomed]")
    picture.focus()
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(page.locator("[data-zoomed]")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(r"zoom=0-0\.5"))
    page.locator("[data-zoomed]").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, 120)
    page.keyboard.up("Control")
    expect(page).to_have_url(re.compile(r"zoom=0-1"))


def test_without_script_the_same_links_are_pages(plain_page: Page) -> None:
    plain_page.goto(DEEP)
    plain_page.get_by_role("link", name="Closer").click()
    expect(plain_page).to_have_url(re.compile(r"zoom=0\.25-0\.75"))
    expect(plain_page.get_by_role("link", name="Whole step")).to_be_visible()


def test_a_recorded_step_is_drawn_over_the_predicted_one_and_each_may_be_seen_alone(
    page: Page, driver: StoreDriver
) -> None:
    layout = cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2)
    trial = driver.ended(driver.sweep(), 0, measurement(timeline=step_timeline()), layout)
    page.goto(f"/trials/{trial.id}")
    section = page.locator("#timeline-section")
    expect(section).to_contain_text("Thick blocks were measured")
    section.get_by_role("link", name="Predicted", exact=True).click()
    expect(section).to_contain_text("Predicted by the schedule simulator")
    ranks = page.locator("#ranks-section")
    ranks.get_by_role("link", name="rank 1", exact=True).click()
    expect(ranks).to_contain_text("The groups of rank 1")
    expect(page).to_have_url(re.compile(r"rank=1"))
    expect(ranks.get_by_role("link", name="rank 1", exact=True)).to_be_focused()
