"""The service from outside: bodies of requests as they come, headers, paths and queries."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import re
import string
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote_from_bytes, unquote

from fastapi import FastAPI

from autotuner.api.edge.caller import client_address
from autotuner.api.edge.limits import check_shape
from autotuner.api.main import create_app
from autotuner.core.codec import to_plain
from autotuner.service.networks import read_networks
from autotuner.store.sql import memory_store
from tests import builders
from tests.api.service import app_on
from tests.fuzz.target import Target, text_of

Answer = TypeVar("Answer")

_ROUTES = (
    ("PUT", "/models/fuzzed"),
    ("PUT", "/clusters/fuzzed"),
    ("POST", "/imports"),
    ("POST", "/exports"),
    ("POST", "/sweeps"),
    ("POST", "/gates"),
    ("POST", "/retunes"),
    ("POST", "/webhooks"),
    ("POST", "/tokens"),
)
_JOB = {"model": "llama-3-8b", "cluster": "h100:8", "workload": {"seq_len": 2048, "global_batch_size": 8}}
_BODIES: tuple[dict[str, Any], ...] = (
    to_plain(builders.tiny_model()),
    to_plain(builders.h100_cluster()),
    {"text": "--tensor-model-parallel-size 2 --num-layers 4", "format": "megatron-lm", "num_ranks": 8},
    {**_JOB, "layout": {"data_parallel_shard_degree": 8}, "format": "megatron-lm"},
    {**_JOB, "cluster": "cpu:2", "model": to_plain(builders.tiny_model()), "budget": {"num_trials": 1}},
    {**_JOB, "layout": {"data_parallel_shard_degree": 8}, "baseline": "main", "min_mfu": 0.3},
    {"name": "nightly", "cron": "0 2 * * *", "sweep": _JOB},
    {"name": "team", "url": "https://hooks.example.com/x", "kinds": []},
    {"name": "ann", "scope": "run", "quota": {"unfinished_sweeps": 1}},
)


_PRINTABLE = string.punctuation.replace("?", "").replace("#", "")
"""Letters and digits go without saying."""


@functools.cache
def _service() -> tuple[FastAPI, asyncio.AbstractEventLoop]:
    api = create_app(app_on(memory_store(), compute_processes=0, requests_per_minute=10**9, log_level="error"))
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return api, loop


def _ask(method: str, path: str, body: bytes, *headers: tuple[bytes, bytes], query: bytes = b"") -> tuple[int, bytes]:
    api, loop = _service()
    said = [(b"host", b"testserver"), (b"content-length", str(len(body)).encode())]
    named = {name for name, _ in headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": query,
        "headers": [*(one for one in said if one[0] not in named), *headers],
        "client": ("127.0.0.1", 5),
        "server": ("testserver", 80),
    }
    return _completed(loop, asyncio.wait_for(_answered(api, scope, body), 10))


def _completed(loop: asyncio.AbstractEventLoop, answer: Coroutine[Any, Any, Answer]) -> Answer:
    """What the coroutine comes to; where a test before left a loop running in this thread, on another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run_until_complete(answer)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(loop.run_until_complete, answer).result()


async def _answered(api: FastAPI, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    sent = [{"type": "http.request", "body": body, "more_body": False}]
    status, told = 0, b""

    async def receive() -> Any:
        return sent.pop() if sent else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        nonlocal status, told
        status = message.get("status", status)
        told += message.get("body", b"")

    await api(scope, receive, send)
    return status, told


def _hold(status: int, told: bytes) -> None:
    """No answer is an error of our own, and a problem says what it is about."""
    assert 200 <= status < 500, told[:500]
    if status >= 400:
        assert json.loads(told)["title"]


def _body(data: bytes) -> None:
    """Each route gets each body, as it comes, or as what stands behind the number of the route in a list."""
    try:
        number, document = json.loads(data)
        method, path = _ROUTES[int(number) % len(_ROUTES)]
        body = json.dumps(document).encode()
    except (ValueError, TypeError, OverflowError, RecursionError):
        (method, path), body = _ROUTES[len(data) % len(_ROUTES)], data
    _hold(*_ask(method, f"/api/v1{path}", body, (b"content-type", b"application/json")))


def _headers(data: bytes) -> None:
    """Lines of names and values, as a server takes them: no end of line inside one."""
    lines = [line.partition(b":") for line in re.split(rb"[\r\n\0]+", data) if line]
    headers = [(name.strip().lower(), value.strip()) for name, _, value in lines if name.strip()]
    _hold(*_ask("POST", "/api/v1/imports", b"{}", *headers))


def _place(data: bytes) -> None:
    """A path and a query, as the server hands them on: it takes nothing but ASCII, and decodes the path."""
    path, _, query = (quote_from_bytes(part, safe=_PRINTABLE) for part in data.partition(b"?"))
    if "wait" in query or path.endswith("events"):
        return  # an answer without end
    status, told = _ask("GET", "/api/v1/" + unquote(path), b"", query=query.encode())
    assert status < 500 or "ready" in path, told[:500]


def _shape(data: bytes) -> None:
    check_shape(data)
    text = text_of(data).encode("latin-1", "replace")
    client_address({"client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", text)]}, _believed())


@functools.cache
def _believed() -> Any:
    return read_networks("10.0.0.0/8", "PROXIES")


TARGETS = (
    Target(
        name="bodies",
        check=_body,
        seeds=tuple(json.dumps([number, body]).encode() for number, body in enumerate(_BODIES)),
        is_json=True,
        words=(
            *("\\ud800", "\\u0000", "1e999", "NaN", "null", '""', "{}", "[]", "-1", "9" * 30),
            *('"base"', '"model_type"'),
        ),
    ),
    Target(
        name="headers",
        check=_headers,
        seeds=(
            b"x-request-id: abc-1\norigin: http://testserver\nhost: testserver\nauthorization: Bearer at_abc_x",
            b"host: [::1]:80\ncookie: session=x; a=b\nx-forwarded-for: 10.0.0.1, ::1\ncontent-type: application/json",
            b"origin: http://[\nsec-fetch-site: same-origin\naccept: */*\nlast-event-id: 1\nidempotency-key: k",
            b"content-length: 2\ntransfer-encoding: chunked\nauthorization: Basic eDp5\ntraceparent: 00-0-0-00",
        ),
        words=(
            *("host:", "origin:", "[", "]", "::", "content-type:", "multipart/form-data", "charset="),
            "authorization:",
        ),
    ),
    Target(
        name="places",
        check=_place,
        seeds=(
            b"sweeps?limit=5&offset=0&state=running",
            b"trials?sweep_id=x&sort=mfu",
            b"models/llama-3-8b",
            b"calibrations?model=x",
            b"../../?number=1e18&x=a%00",
            b"feeds/outcomes?limit=1",
            b"audit?limit=1&after=0",
            b"webhooks/deliveries?state=dead",
        ),
        words=("limit=", "offset=", "&", "%00", "%ff", "1e18", "9" * 20, "..", "//", "sweeps/", "state=", "+", "nan"),
    ),
    Target(name="shape", check=_shape, seeds=(b"[" * 40, b'{"a": [1, {"b": "c"}]}', b"10.0.0.1, ::1"), is_json=True),
)
