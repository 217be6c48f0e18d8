"""Every page: what axe finds, its policy, and its pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from autotuner.core.choices import Recompute
from autotuner.core.sweep import Sweep
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.report.drawing import MANY
from autotuner.store.sql import memory_store
from tests.announcements import webhook
from tests.api.service import StoreDriver, app_on, serve
from tests.browser.pages import PAGES, stocked
from tests.browser.stores import finished_gate, finished_run, retune
from tests.builders import cpu_cluster, cpu_layout, measurement, sweep_request

# ---------------------------------------------------------------- pictures
_RECOMPUTE = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
NUM_MANY = MANY + 10


def swept(driver: StoreDriver, num_trials: int) -> Sweep:
    """A running sweep; trial n reached 20 % MFU and n hundredths of a percent."""
    sweep = driver.sweep()
    for number in range(num_trials):
        layout = cpu_layout(micro_batch_size=1 + number // 3, recompute=_RECOMPUTE[number % 3])
        driver.ended(sweep, number, measurement(mfu=0.2 + number / 10_000, step_time_interval_s=0.001), layout)
    return sweep


def keep_upper_half(page: Page, axis: str) -> None:
    """Drag from the middle of an axis to its upper end."""
    box = page.locator(f'.par-axis[data-axis="{axis}"] .par-hit').bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] / 4)
    page.mouse.move(middle, box["y"])
    page.mouse.up()


def open_on_lines(page: Page, sweep: Sweep) -> Locator:
    """The page of a sweep, scrolled to its parallel coordinates; where it says what is kept."""
    page.goto(f"/sweeps/{sweep.id}")
    page.locator(".parallel svg").evaluate("picture => picture.scrollIntoView({ block: 'center' })")
    return page.locator("#brush-said")


def test_a_brush_on_an_axis_marks_what_it_keeps_everywhere_and_escape_clears_it(
    page: Page, driver: StoreDriver
) -> None:
    said = open_on_lines(page, swept(driver, 6))
    clears = page.get_by_role("button", name="Clear brush")
    expect(clears).to_be_hidden()
    keep_upper_half(page, "mfu")
    expect(said).to_contain_text("Kept 3 of 6: mfu")
    expect(page.locator(".ranking tr.kept")).to_have_count(3)
    expect(page.locator(".ranking tr.dropped")).to_have_count(3)
    expect(page.locator('section:has(#front) .hide-narrow a[data-trial="0"]')).to_have_class("dropped")
    page.keyboard.press("Escape")
    expect(said).to_have_text("")
    expect(page.locator(".dropped")).to_have_count(0)
    expect(clears).to_be_hidden()


def test_kept_trials_can_be_chosen_by_value_without_a_pointer(page: Page, driver: StoreDriver) -> None:
    said = open_on_lines(page, swept(driver, 6))
    page.get_by_text("Keep by value").press("Enter")
    page.get_by_label("recompute from").select_option("none")
    expect(said).to_have_text("Kept 2 of 6: recompute none.")
    page.get_by_label("MFU, % from").fill("20.02")
    page.get_by_label("MFU, % from").press("Tab")
    expect(said).to_contain_text("Kept 1 of 6")
    page.get_by_role("button", name="Clear brush").click()
    expect(page.get_by_label("MFU, % from")).to_have_value("")
    expect(said).to_have_text("")


def test_a_brush_stays_while_trials_go_on_ending(page: Page, driver: StoreDriver) -> None:
    sweep = swept(driver, 6)
    said = open_on_lines(page, sweep)
    page.get_by_text("Keep by value").click()
    page.get_by_label("recompute from").select_option("none")
    expect(said).to_contain_text("Kept 2 of 6")
    driver.ended(sweep, 6, measurement(mfu=0.3), cpu_layout(micro_batch_size=3))
    expect(said).to_contain_text("Kept 3 of 7")
    expect(page.locator(".ranking tr.kept")).to_have_count(3)


def test_kept_trials_stand_out_from_the_path_of_many_trials(page: Page, driver: StoreDriver) -> None:
    said = open_on_lines(page, swept(driver, NUM_MANY))
    keep_upper_half(page, "mfu")
    expect(said).to_contain_text(f"Kept {NUM_MANY // 2} of {NUM_MANY}")
    front = page.locator("section:has(#front) .hide-narrow path.m-cloud.kept")
    assert (front.get_attribute("d") or "").count("M") >= NUM_MANY // 2 - 5
    page.keyboard.press("Escape")
    expect(page.locator("path.kept")).to_have_count(0)


def test_points_lead_to_their_trials(page: Page, driver: StoreDriver) -> None:
    sweep = swept(driver, 3)
    page.goto(f"/sweeps/{sweep.id}")
    page.locator('section:has(#history) .hide-narrow a[data-trial="2"]').last.click()
    expect(page).to_have_url(re.compile(rf"/trials/{sweep.id}-0002$"))


def test_a_point_among_many_leads_to_its_trial_too(page: Page, driver: StoreDriver) -> None:
    sweep = swept(driver, NUM_MANY)
    page.goto(f"/sweeps/{sweep.id}")
    expect(page.locator("#live:not([data-later])")).to_be_attached()  # no redraw is due, which would take the ring away
    crowd = page.locator("section:has(#calibration) .hide-narrow svg")
    start = (crowd.locator("path.m-cloud").get_attribute("d") or "").split("h0")[40].lstrip("M").split()
    x, y = map(float, start)  # the picture is shown in its own size or smaller
    scale = crowd.evaluate("picture => picture.getBoundingClientRect().width / picture.viewBox.baseVal.width")
    crowd.hover(position={"x": x * scale, "y": y * scale})
    expect(crowd.locator(".ring title")).to_have_text(re.compile(r"trial \d+"))
    crowd.click(position={"x": x * scale, "y": y * scale})
    expect(page).to_have_url(re.compile(rf"/trials/{sweep.id}-00\d\d$"))


# ---------------------------------------------------------------- accessibility
_GRAVE = ("serious", "critical")
_TELLS_APART = "landmark-unique"
"""A moderate fault that counts as well: two parts of a page under one name lead nobody to either."""


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a service with something on every page, and what the addresses of these name."""
    driver = StoreDriver(store=memory_store())
    names = stocked(driver, 12)
    with serve(app_on(driver.store)) as address:
        yield address, names


def faults(page: Page) -> list[str]:
    """What axe finds grave on a page: the rule, and the first element that breaks it."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    grave = [fault for fault in found if fault["impact"] in _GRAVE or fault["id"] == _TELLS_APART]
    return [f"{fault['id']}: {fault['nodes'][0]['html'][:200]}" for fault in grave]


def found_on(
    browser: Browser, service: tuple[str, dict[str, str]], names: Iterable[str], scheme: Any
) -> dict[str, Any]:
    """Faults of those pages by name; pages without any are left out."""
    address, values = service
    context = browser.new_context(base_url=address, color_scheme=scheme)
    page = context.new_page()
    found = {}
    for name in names:
        page.goto(PAGES[name].format(**values))
        found[name] = faults(page)
    context.close()
    return {name: grave for name, grave in found.items() if grave}


def test_the_pages_of_every_day_keep_nobody_out(browser: Browser, service: tuple[str, dict[str, str]]) -> None:
    pages = ("home", "sweep", "trial", "trial-slow", "explore", "new", "compare")
    assert not found_on(browser, service, pages, "light")


@pytest.mark.oracle  # half a minute each
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(browser: Browser, service: tuple[str, dict[str, str]], scheme: Any) -> None:
    assert not found_on(browser, service, PAGES, scheme)


# ---------------------------------------------------------------- content policy
HOSTILE = '<script>window.broken = 1</script><img src="x" onerror="window.broken = 2">'
"""What a caller may write into a name."""


def hostile_pages(driver: StoreDriver) -> list[str]:
    """A page of every kind, with something on it."""
    sweep = driver.sweep(sweep_request(name=HOSTILE))
    trial = driver.ended(sweep, 0)
    driver.running(sweep, 1)
    retune(driver)
    for night in range(3):
        finished_run(driver, Verdict.UNCHANGED, 1000.0 + night, HOSTILE, "nightly", night)
    gate = finished_gate(driver, RegressionGateOutcome.PASSED, 1000.0, HOSTILE)
    driver.store.announcements.save_webhook(webhook(name="ours"))
    driver.store.descriptions.save(cpu_cluster(name="lab"))
    pages = ("/", "/retunes", "/gates", "/clusters", "/calibrations", "/webhooks", "/login", "/explore", "/nothing")
    return [
        *pages,
        *("/new", f"/new?clone={sweep.id}"),
        *(f"/sweeps/{sweep.id}", f"/trials/{trial.id}", f"/trials/{trial.id}?format=arguments"),
        *("/retunes/nightly", f"/gates/{gate.id}", "/clusters/lab"),
    ]


def test_every_page_works_under_its_policy(page: Page, driver: StoreDriver, complaints: list[str]) -> None:
    for path in hostile_pages(driver):
        answer = page.goto(path)
        assert answer is not None
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("window.broken") is None, path
        if answer.status == 404:  # the browser tells it as an error
            complaints.clear()
        assert complaints == [], path


@pytest.mark.parametrize(
    "attack",
    [
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = 1'}))",
        "document.body.insertAdjacentHTML('beforeend', '<img src=/none onerror=\"window.broken = 1\">')",
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\" onclick=\"window.broken = 1\">')",
    ],
)
def test_a_script_injected_into_a_page_does_not_run(page: Page, complaints: list[str], attack: str) -> None:
    page.goto("/")
    page.evaluate(attack)
    page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None
    assert any("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()
