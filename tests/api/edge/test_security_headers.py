from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.bodies import CPU
from tests.api.service import app_on, serve
from tests.patience import PATIENCE_S

BROWSER = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(app_on(memory_store())) as address:
        yield address


@pytest.mark.parametrize("path", ["/", "/nothing", "/sweeps/sw-none", "/retunes", "/?number=0"])
def test_a_page_runs_and_loads_nothing_but_the_services_own_files(address: str, path: str) -> None:
    answer = httpx.get(f"{address}{path}", headers=BROWSER, timeout=PATIENCE_S)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/api/v1/nothing", "/api/v1/feed.atom", "/static/live.js"])
def test_what_is_no_page_does_nothing_when_it_is_opened_as_one(address: str, path: str) -> None:
    answer = httpx.get(f"{address}{path}", timeout=PATIENCE_S)
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/", BROWSER), ("/api/v1/sweeps", {}), ("/", {"Host": "evil.net"}), ("/static/style.css", {}), ("/nothing", {})],
)
def test_every_answer_is_what_it_says_and_tells_other_sites_nothing(
    address: str, path: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{address}{path}", headers=headers, timeout=PATIENCE_S)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_answers_are_kept_by_no_cache_but_files_are(address: str) -> None:
    assert httpx.get(f"{address}/api/v1/sweeps", timeout=PATIENCE_S).headers["Cache-Control"] == "no-store"
    assert httpx.post(f"{address}/api/v1/sweeps", json=CPU, timeout=PATIENCE_S).headers["Cache-Control"] == "no-store"
    assert "Cache-Control" not in httpx.get(f"{address}/static/live.js", timeout=PATIENCE_S).headers


def test_pages_hold_no_script_and_no_style_of_their_own(address: str) -> None:
    text = httpx.get(address, headers=BROWSER, timeout=PATIENCE_S).text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", text)
