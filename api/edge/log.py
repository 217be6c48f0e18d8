"""Layers that record requests: headers for the browser, a line in the log, and an entry in the audit log."""

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

from autotuner.api.edge.auth import needed
from autotuner.api.edge.caller import LOOKING, caller_in, client_address
from autotuner.api.errors import internal_error
from autotuner.api.metrics import Requests
from autotuner.core.access import AuditEntry
from autotuner.core.access import Scope as Allowed
from autotuner.core.errors import AutotunerError
from autotuner.service.authentication import without_tokens
from autotuner.service.build import App
from autotuner.service.networks import Network

# Headers of every answer that restrict browsers.

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy of pages: a page may only load our own files, so that a script inside a stored name cannot
run."""

_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""Content-Security-Policy of other answers: a browser that opens one as a page runs nothing in it."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

_A_YEAR_S = 31_536_000

_EMBEDDED = ("image/",)
"""Content types that pages of other sites may embed, for badges."""


def _secure(headers: MutableHeaders, scope: Scope) -> None:
    kind = headers.get("Content-Type", "")
    policy = PAGE_POLICY if kind.startswith("text/html") else _DATA_POLICY
    for name, value in {"Content-Security-Policy": policy, **_HEADERS}.items():
        headers.setdefault(name, value)
    if not kind.startswith(_EMBEDDED):
        headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if not scope["path"].startswith("/static/"):
        headers.setdefault("Cache-Control", "no-store")
    if scope.get("scheme") == "https":
        headers.setdefault("Strict-Transport-Security", f"max-age={_A_YEAR_S}")


# Around every request: an id, headers, a log line and a count, and an answer when our own code fails.

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Middleware that gives each request an id, logs it, counts it, and adds security headers to its answer.

    The id is the caller's ``X-Request-ID`` if that text is safe to log. This middleware is the outermost one, so that
    it sees all requests. It does not log the start and the end of the service (``lifespan``).
    """

    def __init__(self, app: ASGIApp, *, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await scope["app"].router(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        status, is_stream, started = 0, False, time.perf_counter()

        async def send_secured(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                _secure(headers, scope)
                status, is_stream = message["status"], headers.get("Content-Type", "").startswith("text/event-stream")
            await send(message)

        log = structlog.get_logger("api").bind(
            request_id=request_id, method=scope["method"], path=without_tokens(scope["path"])
        )
        trace.get_current_span().set_attribute("autotuner.request_id", request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id), self._requests.open.track_inprogress():
            try:
                await self._app(scope, receive, send_secured)
            except Exception:
                log.exception("request failed")
                if status:  # too late for an answer: let the server cut the connection
                    raise
                await internal_error(Request(scope), request_id)(scope, receive, send_secured)
            finally:
                duration_s = time.perf_counter() - started
                self._requests.count(scope, status or 500, None if is_stream else duration_s)
        caller = caller_in(scope)
        trace.get_current_span().set_attribute("autotuner.caller", caller.name if caller else "")
        log.info("request", status=status, duration_s=round(duration_s, 4), caller=caller.name if caller else None)


def _request_id(headers: Headers) -> str:
    given = headers.get("X-Request-ID", "")
    return given if _SAFE_ID.fullmatch(given) and without_tokens(given) == given else uuid.uuid4().hex


# Refusals of the last minute, so that repeated attempts do not fill the audit log.

_MINUTE_S = 60.0

_MOST = 600
"""Maximum number of refusals that one process adds to the audit log per minute; the request log has all of them."""


class Refusals:
    """A filter that decides which refused requests enter the audit log.

    A refusal enters the log if no equal refusal did in the same minute. The number of refusals per minute has a limit.

    Args:
        clock: Returns seconds that never decrease.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: set[tuple[str, str, str, str, int]] = set()
        self._lock = threading.Lock()

    def is_news(self, entry: AuditEntry) -> bool:
        """Return True if the refusal should be recorded. For a minute, the result is then False for equal refusals."""
        kind = (entry.caller, entry.address, entry.action, entry.subject, entry.status)
        with self._lock:
            if self._clock() - self._began >= _MINUTE_S:
                self._began = self._clock()
                self._seen.clear()
            if kind in self._seen or len(self._seen) >= _MOST:
                return False
            self._seen.add(kind)
            return True


# The audit log: changes and refusals, with their callers.

_REFUSED = (401, 403, 429)
_LONGEST = 200
"""Maximum number of characters kept of a path."""


class AuditLog:
    """Middleware that stores an audit entry before it sends an answer. It is outside of the layers that refuse callers.

    It stores an entry for every request that changed something, and for every refused request. A refusal that is
    repeated within a minute has one entry.

    Args:
        believed: Networks of trusted proxies. Such a proxy names the client of a request.
    """

    def __init__(self, app: ASGIApp, *, believed: Sequence[Network] = ()) -> None:
        self._app = app
        self._believed = believed
        self._refusals = Refusals(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
        route = scope.get("route")  # none if the request was refused before routing
        if not (_has_changed(scope, route, status) or status in _REFUSED):
            return
        app = cast("App", scope["app"].state.autotuner)
        address = client_address(scope, self._believed)
        entry = _entry(scope, route, status, address, app.clock.now())
        if status in _REFUSED and not self._refusals.is_news(entry):
            return
        try:
            await run_in_threadpool(lambda: app.store.access.record(entry))
        except AutotunerError:  # the change is made; at least the log has it
            structlog.get_logger("api").exception("audit.lost", action=entry.action, caller=entry.caller, status=status)


def _has_changed(scope: Scope, route: object | None, status: int) -> bool:
    """Return True if the request may have changed something; an error of our own code counts, since it may have."""
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
