"""Pages that one types into: explore, clusters, and a new sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from playwright.sync_api import Page, expect

from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.profile import with_links
from autotuner.core.run import RunState
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.store.sql import memory_store
from tests import runs
from tests.api.dashboard.test_elsewhere import CONFIG
from tests.api.service import NOW, StoreDriver, app_on, serve
from tests.builders import cpu_cluster, cpu_core, engine_job, link_point, pair_measurements, sweep_request

# ---------------------------------------------------------------- explore
_REST = "+1f1b+mb1+sp+compiled+cudnn+bf16&global_batch_size=64"
CHOSEN = f"/explore?model=llama-3-8b&cluster=h100:8&layout=fsdp2+tp2+pp2{_REST}"
"""On one node: on several, each answer has a bandwidth curve, which takes four times as long as the rest."""


@pytest.fixture(scope="module")
def empty_address() -> Iterator[str]:
    """One service for all: nothing here is stored."""
    with serve(app_on(memory_store(), compute_processes=0)) as empty_address:
        yield empty_address


def test_the_answer_follows_an_input_and_the_address_with_it(page: Page) -> None:
    page.goto(CHOSEN)
    before = page.locator("#verdict").inner_text()
    page.locator("label", has=page.locator("#tensor_parallel_degree-4")).click()
    expect(page).to_have_url(re.compile("layout=tp4.pp2"))
    assert page.locator("#verdict").inner_text() != before
    page.reload()
    expect(page.locator("#tensor_parallel_degree-4")).to_be_checked()


def test_arrow_keys_go_through_the_values_and_the_focus_stays(page: Page) -> None:
    page.goto(CHOSEN)
    page.locator("#micro_batch_size-1").focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("mb2"))
    expect(page.locator("#micro_batch_size-2")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("mb4"))
    expect(page.locator("#micro_batch_size-4")).to_be_focused()
    expect(page.locator("#said")).to_contain_text("predicted MFU")


def test_a_value_that_cannot_be_says_why_and_leads_to_one_that_can(page: Page) -> None:
    page.goto(f"/explore?layout=fsdp2+tp8+pp4{_REST}")
    page.locator("label", has=page.locator("#tensor_parallel_degree-16")).click()
    expect(page.locator("#verdict")).to_contain_text("cannot run")
    expect(page.get_by_text("8 kv heads do not split over 16 tensor ranks").first).to_be_visible()
    page.locator("#nearest").click()
    expect(page.locator("#verdict")).to_contain_text("legal, fits")
    page.go_back()
    expect(page.locator("#verdict")).to_contain_text("cannot run")


def test_back_leads_to_the_choice_before_and_letters_of_one_input_are_one_step(page: Page) -> None:
    page.goto(CHOSEN)
    page.locator("label", has=page.locator("#micro_batch_size-2")).click()
    expect(page).to_have_url(re.compile("mb2"))
    sequence = page.locator("#seq_len")
    sequence.fill("2048")
    expect(page).to_have_url(re.compile("seq_len=2048"))
    sequence.fill("4096")
    expect(page).to_have_url(re.compile("seq_len=4096"))
    page.go_back()
    expect(page.locator("#micro_batch_size-2")).to_be_checked()
    expect(page).not_to_have_url(re.compile("seq_len=2048"))
    page.go_back()
    expect(page.locator("#micro_batch_size-1")).to_be_checked()


def test_typed_text_is_kept_while_the_answer_comes(page: Page) -> None:
    page.goto(CHOSEN)
    sequence = page.locator("#seq_len")
    sequence.fill("")
    sequence.press_sequentially("4096", delay=30)
    expect(page).to_have_url(re.compile("seq_len=4096"))
    expect(sequence).to_be_focused()
    expect(sequence).to_have_value("4096")
    sequence.press_sequentially("x")
    expect(page.locator("#wrong-seq_len")).to_have_text("must be a whole number")
    expect(sequence).to_have_value("4096x")


def test_folded_choices_stay_open_while_they_are_changed(page: Page) -> None:
    page.goto(CHOSEN)
    page.get_by_text("More choices").click()
    page.locator("label", has=page.locator("#offload_activations-on")).click()
    expect(page).to_have_url(re.compile("offload"))
    expect(page.locator("#more")).to_have_attribute("open", "")


def test_a_change_that_would_help_is_applied_with_a_click(page: Page) -> None:
    page.goto(CHOSEN)
    first = page.locator("section:has(#help) tbody a").first
    said = first.inner_text()
    first.click()
    expect(page.get_by_role("link", name=said, exact=True)).to_have_count(0)
    expect(page.locator("#verdict")).to_contain_text("legal, fits")


def test_without_a_script_a_button_sends_the_form(plain_page: Page) -> None:
    plain_page.goto(CHOSEN)
    plain_page.locator("#seq_len").fill("4096")
    plain_page.get_by_role("button", name="Predict").click()
    expect(plain_page).to_have_url(re.compile(r"/explore\?model=llama-3-8b.*seq_len=4096.*layout="))
    expect(plain_page.locator("#verdict")).to_contain_text("legal, fits")


def test_on_a_phone_nothing_sticks_out(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(CHOSEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_layout_on_several_nodes_has_a_bandwidth_curve_that_follows_its_changes(page: Page) -> None:
    page.goto("/explore?model=llama-3-8b&cluster=h100:16&seq_len=2048&layout=dp2 fsdp8 reshard")
    section = page.locator("#bandwidth-section")
    expect(section).to_contain_text("Shorter than with every full exchange")
    page.locator("label", has=page.locator("#micro_batch_size-2")).click()
    expect(page).to_have_url(re.compile("mb2"))
    expect(page.locator("#bandwidth-section[aria-busy]")).to_have_count(0)
    expect(page.locator("#bandwidth-section")).to_contain_text("Layout with the shortest predicted step")


# ---------------------------------------------------------------- clusters
PAIR = replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two", queue="long")


def test_without_a_cluster_the_page_says_how_to_store_and_check_one(page: Page, address: str) -> None:
    page.goto("/")
    page.get_by_role("link", name="Clusters").click()
    expect(page.get_by_role("heading", name="No cluster yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"autotuner cluster check ours --server {address}")


def test_the_page_of_a_cluster_follows_its_check_to_the_measured_links(page: Page, driver: StoreDriver) -> None:
    store = driver.store
    store.descriptions.save(PAIR)
    check = store.descriptions.create_check("pair", CheckRequest(), now=NOW)
    held = runs.claimed(store, "check", now=NOW + 1)
    found = CheckFindings(engine="processes", jobs=(engine_job(),)).said("trial: job 17 waits", NOW + 6)
    runs.report(store, held, found)
    page.goto("/clusters/pair")
    expect(page.locator(f"#{check.id} tbody tr")).to_have_text(["5 strial: job 17 waits"])
    expect(page.locator(f"#{check.id}")).to_contain_text("two: processes · job 17 queued")
    links = page.get_by_role("region", name="Links", exact=True).first
    expect(links).to_contain_text("They were not measured")

    taken = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=4, accelerator=cpu_core())
    store.descriptions.save(replace(taken, cluster="pair"))
    runs.end(store, held, RunState.COMPLETE, "done", now=NOW + 9)
    cells = links.locator("tbody tr").nth(1).locator("td")
    expect(cells).to_have_text(["500 MB/s", "800 MB/s", "200 µs", "100 µs", "loopback"])
    expect(links).to_contain_text("They were measured on 2 nodes")
    expect(page.locator(f"#{check.id} summary")).to_contain_text("complete")


def test_the_pages_of_clusters_fit_a_phone(page: Page, driver: StoreDriver) -> None:
    driver.store.descriptions.save(PAIR)
    driver.store.descriptions.create_check("pair", CheckRequest(), now=NOW)
    found = CheckFindings().said("x" * 500, NOW)
    runs.report(driver.store, runs.claimed(driver.store, "check", now=NOW), found)
    page.set_viewport_size({"width": 360, "height": 740})
    for path in ("/clusters", "/clusters/pair"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_page_shows_which_link_is_late_and_fits_a_phone(page: Page, driver: StoreDriver) -> None:
    four = replace(PAIR, num_nodes=4)
    driver.store.descriptions.save(four)
    points = tuple(link_point(*ends, delay=0.03 if ends == (2, 3) else 50e-6) for ends in combinations(range(4), 2))
    taken = fit_profile(pair_measurements(), name="pair", measured_at=NOW, num_ranks=8, accelerator=cpu_core())
    driver.store.descriptions.save(with_links(replace(taken, cluster="pair"), points, measured_at=NOW, num_nodes=4))
    page.goto("/clusters")
    page.get_by_role("link", name="1 unhealthy").click()
    matrix = page.locator("table.pairs")
    expect(matrix.locator("td.ailing")).to_have_text(["30 ms !"])
    expect(matrix.locator("td.measured")).to_have_count(12)
    expect(page.get_by_role("listitem")).to_contain_text(["nodes 2 and 3: 29.9 ms late"])
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# ---------------------------------------------------------------- new sweep
SMALL = "/new?model=llama-demo&cluster=h100:2&seq_len=128&global_batch_size=8"


def test_a_typed_input_is_answered_without_a_click(page: Page) -> None:
    page.goto(SMALL)
    legal = page.get_by_role("row", name="legal, a trial can run them").get_by_role("cell")
    before = legal.inner_text()
    page.get_by_label("Global batch").fill("6")
    expect(legal).not_to_have_text(before)
    page.get_by_label("Global batch").fill("many")
    expect(page.locator("#wrong-global_batch_size")).to_contain_text("must be a number")
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
    page.get_by_text("The same request for curl, Python and the command line").click()
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
    plain_page.locator("summary", has_text="Advanced").click()
    plain_page.get_by_label("Seed", exact=True).fill("x")
    plain_page.get_by_role("button", name="Check").click()
    expect(plain_page.locator("#wrong-seed")).to_contain_text("must be a number")
    plain_page.get_by_label("Seed", exact=True).fill("3")
    plain_page.get_by_role("button", name="Start sweep").click()
    plain_page.wait_for_url("**/sweeps/sw-*")
    assert driver.store.get_sweep(plain_page.url.rpartition("/")[2]).request.seed == 3
