"""Around every request: an id, a log line, and an answer when our own code fails."""

from __future__ import annotations

import re
import time
import uuid

import structlog
from opentelemetry import trace
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.caller import caller_in
from api.errors import internal_error
from autotuner.service.access.secret import without_tokens

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
