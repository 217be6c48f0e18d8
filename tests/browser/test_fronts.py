"""The front of a sweep in a browser: chosen by keyboard, kept by the address."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.api.service import StoreDriver
from tests.browser.judged import sweep_with_front


def test_weights_chosen_by_keyboard_keep_the_focus_and_come_back_with_the_address(
    page: Page, driver: StoreDriver
) -> None:
    sweep = sweep_with_front(driver, 12)
    page.goto(f"/sweeps/{sweep.id}")
    weight = page.get_by_label("Weight of MFU")
    weight.focus()
    page.keyboard.press("ArrowDown")  # from 2 to 4
    expect(page).to_have_url(re.compile("mfu%3D4"))
    expect(weight).to_be_focused()
    expect(weight).to_have_value("mfu=4")
    page.reload()
    expect(weight).to_have_value("mfu=4")
    page.go_back()
    expect(weight).to_have_value("mfu=2")
