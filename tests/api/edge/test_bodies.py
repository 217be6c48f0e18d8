from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.edge.connections import Bounds
from autotuner.store.sql import memory_store
from tests.api.bodies import CPU
from tests.api.edge.sockets import head, sent
from tests.api.service import app_on, serve
from tests.api.test_problems import JSON, problem

AS_JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(app_on(memory_store(), max_body_bytes=200_000, body_s=0.3), Bounds(linger_s=0.1)) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1", timeout=60) as client:
        yield client


def test_a_body_has_a_longest_length(client: httpx.Client) -> None:
    found = problem(client.post("/sweeps", content=b" " * 200_001, headers=JSON), 413, "content-too-large")
    assert "200000 bytes" in found["detail"]


def test_a_body_that_does_not_tell_its_length_is_counted_as_it_comes(client: httpx.Client) -> None:
    pieces = (b" " * 10_000 for _ in range(21))
    problem(client.post("/sweeps", content=pieces, headers=JSON), 413, "content-too-large")


def test_what_a_name_may_hold_is_stored_and_no_more(client: httpx.Client) -> None:
    assert client.post("/sweeps", json=CPU | {"name": "x" * 200}).status_code == 201
    found = problem(client.post("/sweeps", json=CPU | {"name": "x" * 201}), 422, "invalid-input")
    assert found["field"] == "name"


@pytest.mark.parametrize(
    ("wrong", "field", "rule"),
    [
        (CPU | {"cluster": "x" * 10_001}, "cluster", "must have 10000 characters or fewer"),
        (CPU | {"trainer": "x" * 10_001}, "trainer", "must have 10000 characters or fewer"),
        ({"x" * 201: 1}, "body", "must have 200 characters or fewer, not 201"),
        ({"space": {"micro_batch_size": [1] * 10_001}}, "micro_batch_size", "must have 10000 members or fewer"),
        ({f"x{n}": 1 for n in range(10_001)}, "body", "must have 10000 members or fewer"),
        ({"space": json.loads("[" * 40 + "]" * 40)}, "space", "must not be nested deeper than 32 levels"),
        ({"a": json.loads('{"a":' * 40 + "1" + "}" * 40)}, "a", "must not be nested deeper than 32 levels"),
    ],
)
def test_a_body_has_a_shape_that_is_read_at_little_cost(
    client: httpx.Client, wrong: dict[str, Any], field: str, rule: str
) -> None:
    answer = client.post("/sweeps", content=json.dumps(wrong), headers=JSON)
    found = problem(answer, 422, "invalid-input")
    assert found["field"] == field
    assert rule in found["rule"]
    assert len(answer.content) < 2000


def test_a_body_that_does_not_arrive_is_not_waited_for(address: str) -> None:
    answer = sent(address, head(address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 1000"), b'{"name"')
    assert answer.status == 408
    assert "did not arrive within 0.3 s" in answer.text


def test_a_body_that_arrives_byte_by_byte_is_not_waited_for(address: str) -> None:
    drops = [b"{"] * 100
    answer = sent(
        address, head(address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 1000"), *drops, pause_s=0.1
    )
    assert answer.status == 408


def test_a_body_of_pieces_that_does_not_end_is_not_waited_for(address: str) -> None:
    chunked = head(address, "POST", "/api/v1/sweeps", AS_JSON, "Transfer-Encoding: chunked")
    assert sent(address, chunked, b"1\r\n{\r\n").status == 408


def test_a_client_that_asks_first_is_not_asked_for_a_body_that_is_too_long(address: str) -> None:
    fields = (AS_JSON, "Content-Length: 1000000", "Expect: 100-continue")
    answer = sent(address, head(address, "POST", "/api/v1/sweeps", *fields))
    assert answer.status == 413


def test_the_service_answers_others_meanwhile(address: str, client: httpx.Client) -> None:
    sent(address, head(address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 9"))
    assert client.post("/sweeps", json=CPU).status_code == 201
