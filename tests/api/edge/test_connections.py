"""Connections, streams and bodies that do not end as they should."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from autotuner.api.edge.connections import Bounds
from autotuner.api.edge.limits import OpenStreams
from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.access import Scope as AsgiScope
from autotuner.core.errors import QuotaExceeded
from autotuner.core.listed import Stored
from autotuner.core.named import Described
from autotuner.store.schema import memory_engine
from autotuner.store.sql import Store, memory_store
from tests.api.bodies import CPU
from tests.api.edge.sockets import connected, head, read, sent
from tests.api.service import StoreDriver, app_on, serve, serve_asgi
from tests.api.test_problems import JSON, problem
from tests.patience import PATIENCE_S

# ---------------------------------------------------------------- connections
SHORT = Bounds(head_s=0.3, head_bytes=4096, linger_s=0.3, unread_s=0.3, connections=6)

CLOSE = "Connection: close"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(app_on(memory_store()), SHORT) as address:
        yield address


def test_a_silent_client_gets_a_timeout_error(address: str) -> None:
    assert sent(address).status == 408


def test_half_of_a_head_is_waited_for_so_long_and_no_longer(address: str) -> None:
    answer = sent(address, b"GET / HTTP/1.1\r\nHost: loc")
    assert answer.status == 408
    assert "did not arrive within 0.3 s" in answer.text


def test_a_head_that_arrives_byte_by_byte_is_no_longer_waited_for(address: str) -> None:
    drops = [bytes([byte]) for byte in head(address, "GET", "/api/v1/health")]
    assert sent(address, *drops, pause_s=0.1).status == 408


def test_after_an_answer_the_head_of_the_next_request_is_bounded_too(address: str) -> None:
    answer = sent(address, head(address, "GET", "/api/v1/health"), b"GET / HT", pause_s=0.1)
    assert answer.status == 200
    assert "408 Request Timeout" in answer.text


def send_until_closed(connection: socket.socket, piece: bytes) -> None:
    """Send the piece over and over until the server has closed the connection."""
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            connection.sendall(piece)
            time.sleep(0.05)


def test_empty_lines_between_requests_keep_no_connection_open(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(head(address, "GET", "/api/v1/health"))
        send_until_closed(connection, b"\r\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"a" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"a" * 100) for n in range(50)) + b"\r\n",
        b"GET / HTTP/1.1\r\nCookie: " + b"a" * 300_000,
    ],
)
def test_a_head_has_a_longest_length(address: str, request_bytes: bytes) -> None:
    answer = sent(address, request_bytes)
    assert answer.status == 431
    assert "4096 bytes" in answer.text


def test_a_request_that_is_not_http_is_answered_with_a_problem(address: str) -> None:
    answer = sent(address, b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.status == 400
    assert "application/problem+json" in answer.text


def test_so_many_connections_are_open_at_once_of_an_address_half_of_them(address: str) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            waiting = stack.enter_context(connected(address))
            waiting.sendall(head(address, "POST", "/api/v1/sweeps", "Expect: 100-continue", "Content-Length: 9"))
            assert waiting.recv(1000).startswith(b"HTTP/1.1 100")  # so that its head is whole
        answer = sent(address)
        assert answer.status == 503
        assert "too many connections" in answer.text
    assert httpx.get(f"{address}/api/v1/health", timeout=PATIENCE_S).status_code == 200


def test_connections_without_a_whole_head_make_room_for_others_of_their_address() -> None:
    with serve(app_on(memory_store()), replace(SHORT, head_s=600.0)) as address, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(address)).sendall(b"GET / HT")
        assert sent(address, head(address, "GET", "/api/v1/health", CLOSE)).status == 200


def test_a_body_that_nobody_reads_is_taken_for_a_moment_and_then_the_connection_is_closed(address: str) -> None:
    endless = head(address, "POST", "/api/v1/nothing", "Content-Length: 1000000000")
    with connected(address) as connection:
        connection.sendall(endless)
        send_until_closed(connection, b"x" * 1000)
        assert read(connection).status == 404


async def plenty(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    """An answer of 64 MB, if anybody reads it."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1000):
        await send({"type": "http.response.body", "body": b"x" * 64_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    with serve_asgi(plenty, SHORT) as address, connected(address) as connection:
        connection.sendall(head(address, "GET", "/", CLOSE))
        send_until_closed(connection, b"\r\n")
        assert len(read(connection).text) < 64_000_000


def test_a_client_that_reads_its_answer_gets_all_of_it() -> None:
    with serve_asgi(plenty, SHORT) as address:
        assert len(sent(address, head(address, "GET", "/", CLOSE)).text) > 64_000_000


def test_requests_one_after_another_share_a_connection(address: str) -> None:
    path = "/api/v1/health"
    answer = sent(address, head(address, "GET", path), head(address, "GET", path), head(address, "GET", path, CLOSE))
    assert answer.text.count("HTTP/1.1 200 OK") == 3


def test_a_server_does_not_say_what_it_is_made_of(address: str) -> None:
    assert "server:" not in sent(address, head(address, "GET", "/", CLOSE)).text.lower().partition("\r\n\r\n")[0]


# ---------------------------------------------------------------- streams

ANNA, BEN = (Caller(name=name, scope=AsgiScope.READ) for name in ("anna", "ben"))


def test_so_many_streams_are_open_at_once_and_the_next_when_one_has_ended() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    path = f"/runs/{sweep.id}/events"
    with serve(app_on(driver.store, max_streams=2)) as slow_address, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=f"{slow_address}/api/v1", timeout=PATIENCE_S))
        for _ in range(2):
            stream = stack.enter_context(client.stream("GET", path))
            assert stream.status_code == 200
        refused = client.get(path)
        problem(refused, 429, "quota-exceeded")
        assert int(refused.headers["Retry-After"]) > 0
        driver.finish(sweep)
        while client.get(path).status_code != 200:
            pass


def test_each_caller_has_streams_of_their_own() -> None:
    streams = OpenStreams(at_once=3, per_caller=2)
    with streams.opened(ANNA), streams.opened(ANNA):
        with pytest.raises(QuotaExceeded, match="anna has 2"), streams.opened(ANNA):
            pass
        with (
            streams.opened(BEN),
            pytest.raises(QuotaExceeded, match="3 event streams are open"),
            streams.opened(BEN),
        ):
            pass
    with streams.opened(ANNA), streams.opened(ANNA):
        pass


def test_callers_who_were_not_asked_who_they_are_share_what_there_is() -> None:
    streams = OpenStreams(at_once=3, per_caller=1)
    with streams.opened(NOBODY_ASKED), streams.opened(NOBODY_ASKED), streams.opened(NOBODY_ASKED):
        pass


# ---------------------------------------------------------------- deadlines


class SlowStore(Store):
    """A store that is not done with a list of models before it is told to."""

    def __init__(self) -> None:
        super().__init__(memory_engine())
        self.go_on = threading.Event()
        self.descriptions.stored = self._wait  # type: ignore[method-assign]

    def _wait(self, cls: type[Described]) -> Stored[Described]:  # noqa: ARG002
        self.go_on.wait(PATIENCE_S)
        raise ZeroDivisionError("nobody hears of this any more")


@pytest.fixture
def store() -> Iterator[SlowStore]:
    store = SlowStore()
    yield store
    store.go_on.set()


@pytest.fixture
def slow_address(store: SlowStore) -> Iterator[str]:
    with serve(app_on(store, request_s=0.3)) as slow_address:
        yield slow_address
        store.go_on.set()


def test_a_request_that_takes_too_long_is_answered_with_when_to_come_again(slow_address: str) -> None:
    answer = httpx.get(f"{slow_address}/api/v1/models", timeout=PATIENCE_S)
    found = problem(answer, 503, "too-slow")
    assert "within 0.3 s" in found["detail"]
    assert int(answer.headers["Retry-After"]) > 0


def test_the_late_result_of_a_slow_route_is_dropped(slow_address: str, store: SlowStore) -> None:
    with httpx.Client(base_url=f"{slow_address}/api/v1", timeout=PATIENCE_S) as client:
        problem(client.get("/models"), 503, "too-slow")
        store.go_on.set()
        assert client.get("/health").json() == {"status": "ok"}


def test_a_stream_that_began_goes_on() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    trial = driver.running(sweep, 0)
    with (
        serve(app_on(driver.store, request_s=2.0)) as slow_address,
        httpx.stream("GET", f"{slow_address}/api/v1/runs/{sweep.id}/events", timeout=PATIENCE_S) as answer,
    ):
        lines = answer.iter_lines()
        assert any(line == "event: trial.step" for line in lines)
        threading.Event().wait(2.5)
        driver.end(trial)
        driver.finish(sweep)
        assert any(line == "event: sweep.finished" for line in lines)


# ---------------------------------------------------------------- bodies
AS_JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def reading_address() -> Iterator[str]:
    with serve(app_on(memory_store(), max_body_bytes=200_000, body_s=0.3), Bounds(linger_s=0.1)) as reading_address:
        yield reading_address


@pytest.fixture(scope="module")
def reading_client(reading_address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{reading_address}/api/v1", timeout=60) as reading_client:
        yield reading_client


def test_a_body_has_a_longest_length(reading_client: httpx.Client) -> None:
    found = problem(reading_client.post("/sweeps", content=b" " * 200_001, headers=JSON), 413, "content-too-large")
    assert "200000 bytes" in found["detail"]


def test_a_body_without_a_declared_length_is_counted_as_it_arrives(reading_client: httpx.Client) -> None:
    pieces = (b" " * 10_000 for _ in range(21))
    problem(reading_client.post("/sweeps", content=pieces, headers=JSON), 413, "content-too-large")


def test_a_name_of_200_characters_is_stored_and_a_longer_one_is_refused(reading_client: httpx.Client) -> None:
    assert reading_client.post("/sweeps", json=CPU | {"name": "x" * 200}).status_code == 201
    found = problem(reading_client.post("/sweeps", json=CPU | {"name": "x" * 201}), 422, "invalid-input")
    assert found["field"] == "name"


@pytest.mark.parametrize(
    ("wrong", "field", "rule"),
    [
        (CPU | {"cluster": "x" * 10_001}, "cluster", "must have 10000 characters or fewer"),
        (CPU | {"trainer": "x" * 10_001}, "trainer", "must have 10000 characters or fewer"),
        ({"x" * 201: 1}, "body", "must have at most 200 characters, not 201"),
        (
            {"space": {"micro_batch_size": [1] * 10_001}},
            "micro_batch_size",
            "must have at most 10000 members, not 10001",
        ),
        ({f"x{n}": 1 for n in range(10_001)}, "body", "must have at most 10000 members, not 10001"),
        (
            {"space": json.loads("[" * 40 + "]" * 40)},
            "space",
            "must have at most 32 levels of nested objects and lists",
        ),
        (
            {"a": json.loads('{"a":' * 40 + "1" + "}" * 40)},
            "a",
            "must have at most 32 levels of nested objects and lists",
        ),
    ],
)
def test_a_body_has_a_shape_that_is_read_at_little_cost(
    reading_client: httpx.Client, wrong: dict[str, Any], field: str, rule: str
) -> None:
    answer = reading_client.post("/sweeps", content=json.dumps(wrong), headers=JSON)
    found = problem(answer, 422, "invalid-input")
    assert found["field"] == field
    assert rule in found["rule"]
    assert len(answer.content) < 2000


def test_a_body_that_does_not_arrive_is_not_waited_for(reading_address: str) -> None:
    answer = sent(
        reading_address,
        head(reading_address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 1000"),
        b'{"name"',
    )
    assert answer.status == 408
    assert "did not arrive within 0.3 s" in answer.text


def test_a_body_that_arrives_byte_by_byte_is_not_waited_for(reading_address: str) -> None:
    drops = [b"{"] * 100
    answer = sent(
        reading_address,
        head(reading_address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 1000"),
        *drops,
        pause_s=0.1,
    )
    assert answer.status == 408


def test_a_body_of_pieces_that_does_not_end_is_not_waited_for(reading_address: str) -> None:
    chunked = head(reading_address, "POST", "/api/v1/sweeps", AS_JSON, "Transfer-Encoding: chunked")
    assert sent(reading_address, chunked, b"1\r\n{\r\n").status == 408


def test_a_client_that_asks_first_is_not_asked_for_a_body_that_is_too_long(reading_address: str) -> None:
    fields = (AS_JSON, "Content-Length: 1000000", "Expect: 100-continue")
    answer = sent(reading_address, head(reading_address, "POST", "/api/v1/sweeps", *fields))
    assert answer.status == 413


def test_the_service_answers_others_meanwhile(reading_address: str, reading_client: httpx.Client) -> None:
    sent(reading_address, head(reading_address, "POST", "/api/v1/sweeps", AS_JSON, "Content-Length: 9"))
    assert reading_client.post("/sweeps", json=CPU).status_code == 201
