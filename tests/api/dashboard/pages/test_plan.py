from __future__ import annotations

import re
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.patience import PATIENCE_S

SMALL = "model=llama-3-8b&tokens=100B&deadline=20d&seq_len=4096&global_batch_size=256&accelerators=h100&sizes=16,32"


@pytest.fixture
def browser(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, headers={"Accept": "text/html"}, timeout=60) as client:
        yield client


def planned(browser: httpx.Client, query: str) -> str:
    """The page once its plan is computed."""
    give_up_at = time.monotonic() + PATIENCE_S
    while "Comparing clusters" in (page := browser.get(f"/plan?{query}").text):
        assert time.monotonic() < give_up_at, "the plan was not computed in time"
        time.sleep(0.2)
    return page


def test_a_plan_says_what_to_take_and_shows_the_front(browser: httpx.Client) -> None:
    page = planned(browser, SMALL)
    assert re.search(r"Take h100-sxm:(16|32)", page)
    assert "It keeps the deadline of 20 days in" in page
    assert "Predicted time against cost of 2 clusters" in page
    assert "twice the network" in page
    assert "Modal price list, per second times 3,600, 2026-05-07" in page
    assert "data-ended" in page


def test_while_it_is_computed_the_page_asks_again(browser: httpx.Client) -> None:
    page = browser.get("/plan?model=llama-3-70b&tokens=2T&deadline=60d&accelerators=h100").text
    assert 'data-every-s="1"' in page
    assert 'http-equiv="refresh"' in page  # without a script


def test_an_input_that_is_wrong_says_so_beside_itself(browser: httpx.Client) -> None:
    page = browser.get("/plan?model=llama-3-8b&tokens=100B&deadline=20").text
    assert 'id="wrong-deadline"' in page
    assert "nearest: 20d" in page
    page = browser.get("/plan?model=llama-3-8b&tokens=100B&accelerators=h10").text
    assert 'id="wrong-accelerators"' in page
    page = planned(browser, SMALL.replace("sizes=16,32", "sizes=12"))
    assert 'id="wrong-sizes"' in page


def test_what_is_left_out_is_as_usual_but_for_limits(browser: httpx.Client) -> None:
    page = planned(browser, "model=llama-3-8b&tokens=100B&accelerators=h100&sizes=16")
    assert 'id="deadline" name="deadline" value=""' in page
    assert 'id="seq_len" name="seq_len" value="8192"' in page
