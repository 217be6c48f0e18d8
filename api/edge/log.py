"""What is written down of requests: a log line each, and the audit log of who changed something or was refused."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import cast

import structlog
from opentelemetry import trace
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.auth import LOOKING, needed
from api.edge.caller import caller_in, client_address
from api.errors import internal_error
from autotuner.core.access import AuditEntry
from autotuner.core.access import Scope as Allowed
from autotuner.core.errors import AutotunerError
from autotuner.service.access import without_tokens
from autotuner.service.build import App
from autotuner.service.networks import Network

# Around every request: an id, a log line, and an answer when our own code fails.

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Gives each request an id (the caller's ``X-Request-ID`` where it is safe to log), and logs how it ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        log = structlog.get_logger("api").bind(request_id=request_id, method=scope["method"], path=_path(scope))
        started = time.perf_counter()
        trace.get_current_span().set_attribute("autotuner.request_id", request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception:
                log.exception("request failed")
                if status:  # too late for an answer: let the server cut the connection
                    raise
                await internal_error(Request(scope), request_id)(scope, receive, send_with_id)
        caller = caller_in(scope)
        trace.get_current_span().set_attribute("autotuner.caller", caller.name if caller else "")
        log.info(
            "request",
            status=status,
            duration_s=round(time.perf_counter() - started, 4),
            caller=caller.name if caller else None,
        )


def _path(scope: Scope) -> str:
    return without_tokens(scope["path"])


def _request_id(headers: Headers) -> str:
    given = headers.get("X-Request-ID", "")
    return given if _SAFE_ID.fullmatch(given) and without_tokens(given) == given else uuid.uuid4().hex


# Refusals: those of the last minute, so that whoever knocks again and again does not fill the audit log.

_MINUTE_S = 60.0

_MOST = 600
"""Refusals that one process records in a minute, whoever knocks; the request log has all of them."""


class Refusals:
    """Which refusals are news: the first of its kind within a minute, and not too many of them.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: set[tuple[str, str, str, str, int]] = set()
        self._lock = threading.Lock()

    def is_news(self, entry: AuditEntry) -> bool:
        """Whether it is to be recorded; asking makes it known."""
        kind = (entry.caller, entry.address, entry.action, entry.subject, entry.status)
        with self._lock:
            if self._clock() - self._began >= _MINUTE_S:
                self._began = self._clock()
                self._seen.clear()
            if kind in self._seen or len(self._seen) >= _MOST:
                return False
            self._seen.add(kind)
            return True


# The audit log: who changed something, and who was refused.

_REFUSED = (401, 403, 429)
_LONGEST = 200
"""Characters of a path that are kept."""


class AuditLog:
    """Stores an entry before the answer goes out; it stands around what refuses callers, so that it hears of that too.

    Every request that changed something has its entry, and so has every refusal; a refusal that is repeated within a
    minute has one.

    Args:
        believed: Networks of proxies that say where a request comes from.
    """

    def __init__(self, app: ASGIApp, *, believed: Sequence[Network] = ()) -> None:
        self._app = app
        self._believed = believed
        self._refusals = Refusals(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def send_recorded(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start" and not is_answered:
                is_answered = True
                await self._record(scope, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_recorded)
        except Exception:
            if not is_answered:
                await self._record(scope, 500)
            raise

    async def _record(self, scope: Scope, status: int) -> None:
        route = scope.get("route")  # none where it was refused before
        if not (_has_changed(scope, route, status) or status in _REFUSED):
            return
        app = cast("App", scope["app"].state.autotuner)
        address = client_address(scope, self._believed)
        entry = _entry(scope, route, status, address, app.clock.now())
        if status in _REFUSED and not self._refusals.is_news(entry):
            return
        try:
            await run_in_threadpool(lambda: app.store.access.record(entry))
        except AutotunerError:  # what was done is done; the log has it in this line at least
            structlog.get_logger("api").exception("audit.lost", action=entry.action, caller=entry.caller, status=status)


def _has_changed(scope: Scope, route: object | None, status: int) -> bool:
    """Whether the request was let do what changes something; one of our own failures may have."""
    if scope["method"] in LOOKING or route is None or needed(route, scope["method"]) is Allowed.READ:
        return False
    return status < 400 or status >= 500


def _entry(scope: Scope, route: object | None, status: int, address: str, now: float) -> AuditEntry:
    caller = caller_in(scope)
    request_id = structlog.contextvars.get_contextvars().get("request_id", "")
    return AuditEntry(
        at=now,
        caller="" if caller is None else caller.name,
        token_id=None if caller is None else caller.token_id,
        action=str(getattr(route, "name", None) or scope["method"].lower()),
        subject=without_tokens(scope["path"])[:_LONGEST],
        status=status,
        request_id=str(request_id),
        address=address,
    )
