from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.bodies import CPU
from tests.api.edge.sockets import sent
from tests.api.service import app_on, serve
from tests.api.test_problems import problem
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- hosts


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    app = app_on(memory_store(), hosts="tuner.example.com, *.lab", public_url="https://public.example.com/tuner")
    with serve(app) as address, httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client


@pytest.mark.parametrize("host", ["evil.example.com", "tuner.example.com.evil.net", "lab", "", "a/b", "x@localhost"])
def test_a_name_that_was_made_to_lead_here_is_not_served(client: httpx.Client, host: str) -> None:
    found = problem(client.get("/sweeps", headers={"Host": host}), 421, "unknown-host")
    assert "AUTOTUNER_HOSTS" in found["detail"]


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "a.localhost", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000"),
        *("tuner.example.com", "Tuner.Example.Com:443", "tuner.example.com.", "gpu-7.lab", "public.example.com"),
    ],
)
def test_addresses_and_the_names_that_an_operator_gave_are_served(client: httpx.Client, host: str) -> None:
    assert client.get("/sweeps", headers={"Host": host}).status_code == 200


def test_probes_are_answered_by_any_name(client: httpx.Client) -> None:
    assert client.get("/health", headers={"Host": "pod-7"}).status_code == 200
    assert client.get("/ready", headers={"Host": "pod-7"}).status_code == 200


def test_two_hosts_in_one_request_are_none(client: httpx.Client) -> None:
    address = str(client.base_url).removesuffix("/api/v1/")
    twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.net\r\nConnection: close\r\n\r\n"
    assert sent(address, twice).status == 421
    assert sent(address, b"GET / HTTP/1.0\r\n\r\n").status == 421


@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://localhost.evil.net"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing(client: httpx.Client, fields: dict[str, str]) -> None:
    before = client.get("/sweeps").json()
    refused = client.post("/sweeps", json=CPU, headers={"Host": "localhost:8000"} | fields)
    problem(refused, 403, "cross-site")
    assert client.get("/sweeps").json() == before


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"Host": "localhost:8000", "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"},
        {"Host": "tuner.example.com", "Origin": "https://tuner.example.com"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_the_services_own_pages_and_programs_do(client: httpx.Client, fields: dict[str, str]) -> None:
    assert client.post("/sweeps", json=CPU, headers=fields).status_code == 201


# ---------------------------------------------------------------- security headers

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


@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/api/v1/nothing", "/api/v1/feed.atom", "/static/page.js"])
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
    assert "Cache-Control" not in httpx.get(f"{address}/static/page.js", timeout=PATIENCE_S).headers


def test_pages_hold_no_script_and_no_style_of_their_own(address: str) -> None:
    text = httpx.get(address, headers=BROWSER, timeout=PATIENCE_S).text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", text)
