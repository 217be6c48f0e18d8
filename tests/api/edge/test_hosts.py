from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.store.sql import memory_store
from tests.api.bodies import CPU
from tests.api.edge.sockets import sent
from tests.api.service import app_on, serve
from tests.api.test_problems import problem


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
