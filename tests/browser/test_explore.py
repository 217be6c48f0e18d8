"""Explore as people use it: inputs move, the answer follows, the address is the permalink."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from autotuner.store.sql import memory_store
from tests.api.service import app_on, serve

TP8 = "/explore?layout=fsdp2+tp8+pp4+1f1b+mb1+sp+compiled+cudnn+bf16&global_batch_size=64"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One service for all: nothing here is stored."""
    with serve(app_on(memory_store(), asides=0)) as address:
        yield address


def test_the_answer_follows_an_input_and_the_address_with_it(page: Page) -> None:
    page.goto(TP8)
    before = page.locator("#verdict").inner_text()
    page.locator("label", has=page.locator("#tensor_parallel_degree-4")).click()
    expect(page).to_have_url(re.compile("layout=fsdp4.tp4.pp4"))
    assert page.locator("#verdict").inner_text() != before
    page.reload()
    expect(page.locator("#tensor_parallel_degree-4")).to_be_checked()


def test_arrow_keys_go_through_the_values_and_the_focus_stays(page: Page) -> None:
    page.goto(TP8)
    page.locator("#micro_batch_size-1").focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("mb2"))
    expect(page.locator("#micro_batch_size-2")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("mb4"))
    expect(page.locator("#micro_batch_size-4")).to_be_focused()
    expect(page.locator("#said")).to_contain_text("predicted MFU")


def test_a_value_that_cannot_be_says_why_and_leads_to_one_that_can(page: Page) -> None:
    page.goto(TP8)
    page.locator("label", has=page.locator("#tensor_parallel_degree-16")).click()
    expect(page.locator("#verdict")).to_contain_text("cannot run")
    expect(page.get_by_text("8 kv heads do not split over 16 tensor ranks").first).to_be_visible()
    page.locator("#nearest").click()
    expect(page.locator("#verdict")).to_contain_text("legal, fits")
    page.go_back()
    expect(page.locator("#verdict")).to_contain_text("cannot run")


def test_back_leads_to_the_choice_before_and_letters_of_one_input_are_one_step(page: Page) -> None:
    page.goto(TP8)
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


def test_what_is_typed_is_kept_while_the_answer_comes(page: Page) -> None:
    page.goto(TP8)
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
    page.goto(TP8)
    page.get_by_text("More choices").click()
    page.locator("label", has=page.locator("#offload_activations-on")).click()
    expect(page).to_have_url(re.compile("offload"))
    expect(page.locator("#more")).to_have_attribute("open", "")


def test_a_change_that_would_help_is_applied_with_a_click(page: Page) -> None:
    page.goto(TP8)
    first = page.locator("section:has(#help) tbody a").first
    said = first.inner_text()
    first.click()
    expect(page.get_by_role("link", name=said, exact=True)).to_have_count(0)
    expect(page.locator("#verdict")).to_contain_text("legal, fits")


def test_without_a_script_a_button_sends_the_form(plain_page: Page) -> None:
    plain_page.goto(TP8)
    plain_page.locator("#seq_len").fill("4096")
    plain_page.get_by_role("button", name="Predict").click()
    expect(plain_page).to_have_url(re.compile(r"/explore\?model=llama-3-70b.*seq_len=4096.*layout="))
    expect(plain_page.locator("#verdict")).to_contain_text("legal, fits")


def test_on_a_phone_nothing_sticks_out(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(TP8)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_layout_on_several_nodes_has_a_bandwidth_curve_that_follows_its_changes(page: Page) -> None:
    page.goto("/explore?model=llama-3-8b&cluster=h100:16&seq_len=2048&layout=dp2 fsdp8 reshard")
    section = page.locator("#bandwidth-section")
    expect(section).to_contain_text("Shorter than with every full exchange")
    page.locator("label", has=page.locator("#micro_batch_size-2")).click()
    expect(page).to_have_url(re.compile("mb2"))
    expect(page.locator("#bandwidth-section[aria-busy]")).to_have_count(0)
    expect(page.locator("#bandwidth-section")).to_contain_text("Shortest predicted step")
