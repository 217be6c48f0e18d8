from __future__ import annotations

import json

from playwright.sync_api import Page, expect

from tests.api.dashboard.test_elsewhere import CONFIG
from tests.api.service import StoreDriver
from tests.builders import sweep_request

SMALL = "/new?model=llama-demo&cluster=h100:2&seq_len=128&global_batch_size=8"


def test_what_is_typed_is_answered_without_a_click(page: Page) -> None:
    page.goto(SMALL)
    legal = page.get_by_role("row", name="legal, a trial can run them").get_by_role("cell")
    before = legal.inner_text()
    page.get_by_label("Global batch").fill("6")
    expect(legal).not_to_have_text(before)
    page.get_by_label("Global batch").fill("many")
    expect(page.locator("#wrong-global_batch")).to_contain_text("must be a number")
    expect(page.get_by_label("Global batch")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Global batch").fill("8")
    expect(legal).to_have_text(before)
    expect(page.get_by_label("Global batch")).not_to_have_attribute("aria-invalid", "true")


def test_a_choice_of_values_narrows_the_space_and_the_requests_that_are_said(page: Page) -> None:
    page.goto(SMALL)
    recompute = page.get_by_role("group", name="recompute", exact=True)
    expect(recompute.get_by_text("none, selective, full")).to_be_visible()
    recompute.get_by_role("radio", name="chosen").check()
    recompute.get_by_role("checkbox", name="full").check()
    page.get_by_text("The same request as curl, Python and command").click()
    expect(page.get_by_label("Python", exact=True)).to_contain_text("'space': {'recompute': ['full']}")
    expect(page.get_by_label("Command line")).to_contain_text("""--space '{"recompute": ["full"]}'""")


def test_a_dropped_config_is_read_into_the_form(page: Page) -> None:
    page.goto(SMALL)
    page.evaluate(
        """text => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], "config.json", { type: "application/json" }));
          const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
          document.getElementById("model").dispatchEvent(drop);
        }""",
        json.dumps(CONFIG),
    )
    expect(page.locator("#facts-model")).to_have_text("4 layers, hidden 64, 4 kv heads")
    expect(page.get_by_role("radio", name="config.json")).to_be_checked()


def test_one_click_starts_the_sweep_and_shows_it(page: Page, driver: StoreDriver) -> None:
    page.goto(SMALL)
    page.get_by_role("textbox", name="Name").fill("from the form")
    page.get_by_role("button", name="Start sweep").click()
    page.wait_for_url("**/sweeps/sw-*")
    (sweep,) = driver.store.runs.list("sweep")[0]
    assert sweep.request.name == "from the form"


def test_enter_in_an_input_starts_nothing(page: Page, driver: StoreDriver) -> None:
    page.goto(SMALL)
    page.get_by_label("Trials", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="New sweep")).to_be_visible()
    assert driver.store.runs.list("sweep")[1] == 0


def test_without_script_the_form_is_checked_and_started_by_its_buttons(plain_page: Page, driver: StoreDriver) -> None:
    original = driver.sweep(sweep_request(name="before"))
    plain_page.goto(f"/new?clone={original.id}")
    plain_page.locator("summary", has_text="Seldom used").click()
    plain_page.get_by_label("Seed", exact=True).fill("x")
    plain_page.get_by_role("button", name="Check").click()
    expect(plain_page.locator("#wrong-seed")).to_contain_text("must be a number")
    plain_page.get_by_label("Seed", exact=True).fill("3")
    plain_page.get_by_role("button", name="Start sweep").click()
    plain_page.wait_for_url("**/sweeps/sw-*")
    assert driver.store.get_sweep(plain_page.url.rpartition("/")[2]).request.seed == 3
