from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from api.edge.connections import Bounds
from autotuner.store.sql import memory_store
from tests.api.edge.sockets import connected, head, read, sent
from tests.api.service import app_on, serve, serve_asgi
from tests.patience import PATIENCE_S

SHORT = Bounds(head_s=0.3, head_bytes=4096, linger_s=0.3, unread_s=0.3, connections=6)

CLOSE = "Connection: close"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve(app_on(memory_store()), SHORT) as address:
        yield address


def test_who_says_nothing_is_told_that_it_took_too_long(address: str) -> None:
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


def test_what_is_no_http_is_answered_with_a_problem(address: str) -> None:
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


def test_who_does_not_read_an_answer_is_cut_off() -> None:
    with serve_asgi(plenty, SHORT) as address, connected(address) as connection:
        connection.sendall(head(address, "GET", "/", CLOSE))
        send_until_closed(connection, b"\r\n")
        assert len(read(connection).text) < 64_000_000


def test_who_reads_an_answer_gets_all_of_it() -> None:
    with serve_asgi(plenty, SHORT) as address:
        assert len(sent(address, head(address, "GET", "/", CLOSE)).text) > 64_000_000


def test_requests_one_after_another_share_a_connection(address: str) -> None:
    path = "/api/v1/health"
    answer = sent(address, head(address, "GET", path), head(address, "GET", path), head(address, "GET", path, CLOSE))
    assert answer.text.count("HTTP/1.1 200 OK") == 3


def test_a_server_does_not_say_what_it_is_made_of(address: str) -> None:
    assert "server:" not in sent(address, head(address, "GET", "/", CLOSE)).text.lower().partition("\r\n\r\n")[0]
