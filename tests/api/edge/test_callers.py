"""Who calls, and by which host."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from autotuner.api.edge.auth import check_start
from autotuner.api.edge.caller import client_address, set_caller
from autotuner.api.edge.limits import Rates, rate_of_address, rate_of_caller
from autotuner.core.access import NOBODY_ASKED, Caller, Quota, Scope
from autotuner.core.access import Scope as CallerScope
from autotuner.core.errors import InvalidInput
from autotuner.store.sql import memory_store
from tests.api.bodies import CPU
from tests.api.edge.sockets import sent
from tests.api.service import app_on, serve
from tests.api.test_problems import problem
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- addresses

PROXIES = (ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.7"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["198.51.100.9, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["198.51.100.9", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
    ],
)
def test_headers_count_only_from_a_trusted_proxy(peer: str, forwarded: list[str], address: str) -> None:
    headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
    assert client_address({"type": "http", "client": (peer, 1), "headers": headers}, PROXIES) == address


def test_a_service_inside_a_command_has_no_address() -> None:
    assert client_address({"type": "http", "client": None, "headers": []}) == ""


# ---------------------------------------------------------------- login

PROXY: dict[str, Any] = {"login": "proxy", "proxy_header": "X-Forwarded-User", "proxy_networks": "10.0.0.0/8"}
ANYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "AUTOTUNER_LOGIN=tokens"),
        ({"login": "tokens"}, "autotuner token add"),
        ({"login": "tokens", "admin_token_file": Path("/nothing")}, "AUTOTUNER_ADMIN_TOKEN_FILE"),
        (PROXY | {"proxy_header": None}, "AUTOTUNER_PROXY_HEADER"),
        (PROXY | {"proxy_networks": ""}, "AUTOTUNER_PROXY_NETWORKS"),
        (PROXY | {"proxy_networks": "my proxy"}, "AUTOTUNER_PROXY_NETWORKS"),
    ],
)
def test_a_service_that_would_let_in_everybody_or_nobody_does_not_start(settings: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        check_start(app_on(memory_store(), **settings), ANYWHERE)


def test_a_service_starts_on_any_address_once_it_can_identify_callers(tmp_path: Path) -> None:
    with_tokens = app_on(memory_store(), login="tokens")
    with_tokens.tokens.add("root", Scope.ADMIN)
    file = tmp_path / "token"
    file.write_text("at_first_" + 40 * "s")
    with_a_file = app_on(memory_store(), login="tokens", admin_token_file=file)
    for app in (with_tokens, with_a_file, app_on(memory_store(), **PROXY)):
        check_start(app, ANYWHERE)
    assert [token.id for token in with_a_file.tokens.all()] == ["first"]


def test_callers_at_a_loopback_address_need_not_be_identified() -> None:
    check_start(app_on(memory_store()), "127.0.0.1")


# ---------------------------------------------------------------- rates

ANNA = Caller(name="anna", scope=CallerScope.READ, token_id="t1")
CI = Caller(name="ci", scope=CallerScope.RUN, token_id="t2", quota=Quota(requests_per_minute=2))


class CalledBy:
    """Says that all requests come from one caller."""

    def __init__(self, app: ASGIApp, caller: Caller) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        set_caller(scope, self._caller)
        await self._app(scope, receive, send)


answering = PlainTextResponse("served")


def answers(app: ASGIApp, paths: Sequence[str], client: str = "192.0.2.1") -> list[httpx.Response]:
    """What the application answers to requests one after another."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return [await http.get(path) for path in paths]

    return asyncio.run(ask())


def test_a_caller_may_send_so_many_requests_a_minute() -> None:
    found = answers(CalledBy(Rates(answering, rate_of=partial(rate_of_caller, per_minute=3)), ANNA), ["/"] * 4)
    assert [answer.status_code for answer in found] == [200, 200, 200, 429]
    assert 1 <= int(found[-1].headers["Retry-After"]) <= 120
    assert "anna (the limit is 3 per minute)" in found[-1].json()["detail"]


def test_the_limit_of_a_token_overrides_the_default() -> None:
    found = answers(CalledBy(Rates(answering, rate_of=partial(rate_of_caller, per_minute=100)), CI), ["/"] * 3)
    assert [answer.status_code for answer in found] == [200, 200, 429]


def test_callers_who_were_not_asked_who_they_are_send_what_they_like() -> None:
    found = answers(CalledBy(Rates(answering, rate_of=partial(rate_of_caller, per_minute=1)), NOBODY_ASKED), ["/"] * 3)
    assert [answer.status_code for answer in found] == [200, 200, 200]


def test_an_address_may_send_so_many_requests_a_minute() -> None:
    app = Rates(answering, rate_of=partial(rate_of_address, per_minute=3))
    assert [answer.status_code for answer in answers(app, ["/"] * 4)] == [200, 200, 200, 429]


@pytest.mark.parametrize(("other", "status"), [("2001:db8::2", 429), ("2001:db8:0:1::2", 200), ("192.0.2.9", 200)])
def test_addresses_of_one_household_count_as_one(other: str, status: int) -> None:
    limited = Rates(answering, rate_of=partial(rate_of_address, per_minute=1))

    async def both() -> int:
        for client in ("2001:db8::1", other):
            transport = httpx.ASGITransport(limited, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                answer = await http.get("/")
        return answer.status_code

    assert asyncio.run(both()) == status


# ---------------------------------------------------------------- hosts


@pytest.fixture(scope="module")
def named_client() -> Iterator[httpx.Client]:
    app = app_on(memory_store(), hosts="tuner.example.com, *.lab", public_url="https://public.example.com/tuner")
    with (
        serve(app) as named_address,
        httpx.Client(base_url=f"{named_address}/api/v1", timeout=60) as named_client,
    ):
        yield named_client


@pytest.mark.parametrize("host", ["evil.example.com", "tuner.example.com.evil.net", "lab", "", "a/b", "x@localhost"])
def test_a_name_that_was_made_to_lead_here_is_not_served(named_client: httpx.Client, host: str) -> None:
    found = problem(named_client.get("/sweeps", headers={"Host": host}), 421, "unknown-host")
    assert "AUTOTUNER_HOSTS" in found["detail"]


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "a.localhost", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000"),
        *("tuner.example.com", "Tuner.Example.Com:443", "tuner.example.com.", "gpu-7.lab", "public.example.com"),
    ],
)
def test_addresses_and_the_names_that_an_operator_gave_are_served(named_client: httpx.Client, host: str) -> None:
    assert named_client.get("/sweeps", headers={"Host": host}).status_code == 200


def test_probes_are_answered_by_any_name(named_client: httpx.Client) -> None:
    assert named_client.get("/health", headers={"Host": "pod-7"}).status_code == 200
    assert named_client.get("/ready", headers={"Host": "pod-7"}).status_code == 200


def test_two_hosts_in_one_request_are_none(named_client: httpx.Client) -> None:
    named_address = str(named_client.base_url).removesuffix("/api/v1/")
    twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.net\r\nConnection: close\r\n\r\n"
    assert sent(named_address, twice).status == 421
    assert sent(named_address, b"GET / HTTP/1.0\r\n\r\n").status == 421


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
def test_a_page_of_another_site_changes_nothing(named_client: httpx.Client, fields: dict[str, str]) -> None:
    before = named_client.get("/sweeps").json()
    refused = named_client.post("/sweeps", json=CPU, headers={"Host": "localhost:8000"} | fields)
    problem(refused, 403, "cross-site")
    assert named_client.get("/sweeps").json() == before


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"Host": "localhost:8000", "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"},
        {"Host": "tuner.example.com", "Origin": "https://tuner.example.com"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_the_services_own_pages_and_programs_do(named_client: httpx.Client, fields: dict[str, str]) -> None:
    assert named_client.post("/sweeps", json=CPU, headers=fields).status_code == 201


# ---------------------------------------------------------------- security headers

BROWSER = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def named_address() -> Iterator[str]:
    with serve(app_on(memory_store())) as named_address:
        yield named_address


@pytest.mark.parametrize("path", ["/", "/nothing", "/sweeps/sw-none", "/retunes", "/?number=0"])
def test_a_page_runs_and_loads_nothing_but_the_services_own_files(named_address: str, path: str) -> None:
    answer = httpx.get(f"{named_address}{path}", headers=BROWSER, timeout=PATIENCE_S)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/api/v1/nothing", "/api/v1/feed.atom", "/static/page.js"])
def test_a_file_that_is_not_a_page_does_nothing_when_opened(named_address: str, path: str) -> None:
    answer = httpx.get(f"{named_address}{path}", timeout=PATIENCE_S)
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/", BROWSER), ("/api/v1/sweeps", {}), ("/", {"Host": "evil.net"}), ("/static/style.css", {}), ("/nothing", {})],
)
def test_every_answer_has_its_declared_type_and_gives_other_sites_nothing(
    named_address: str, path: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{named_address}{path}", headers=headers, timeout=PATIENCE_S)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_answers_are_kept_by_no_cache_but_files_are(named_address: str) -> None:
    assert httpx.get(f"{named_address}/api/v1/sweeps", timeout=PATIENCE_S).headers["Cache-Control"] == "no-store"
    assert (
        httpx.post(f"{named_address}/api/v1/sweeps", json=CPU, timeout=PATIENCE_S).headers["Cache-Control"]
        == "no-store"
    )
    assert "Cache-Control" not in httpx.get(f"{named_address}/static/page.js", timeout=PATIENCE_S).headers


def test_pages_hold_no_script_and_no_style_of_their_own(named_address: str) -> None:
    text = httpx.get(named_address, headers=BROWSER, timeout=PATIENCE_S).text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", text)
