"""What stands around the routes, in order."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.auth import Callers
from api.edge.bodies import Bodies, BodyRefused, answer_refused
from api.edge.limits import AddressRates, CallerRates, Deadlines, Hosts, OpenStreams, allowed_hosts
from api.edge.log import AuditLog, RequestLog
from autotuner.service.settings import Settings

# What every answer tells browsers not to do with it.

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content-Security-Policy of a page: everything it uses is its own, as files; what a caller wrote into a name can load
and run nothing."""

_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""That of whatever is no page: opened as one, it does nothing."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

_A_YEAR_S = 31_536_000

_EMBEDDED = ("image/",)
"""Badges are shown on pages of other sites."""


class SecurityHeaders:
    """Adds them to every answer, without taking any from it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _secure(MutableHeaders(scope=message), scope)
            await send(message)

        return await self._app(scope, receive, send_with_headers)


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


_SHARING = 10
"""Callers of one address, behind a translating router or a proxy that is not named, who send all they may."""


def add_edge(api: FastAPI, settings: Settings) -> None:
    """Put around the routes of ``api``, the innermost first: who calls, what it may take, both logs, the headers."""
    api.state.streams = OpenStreams(at_once=settings.max_streams, per_caller=settings.max_streams_per_caller)
    api.add_exception_handler(BodyRefused, answer_refused)
    if api.state.entrance is not None:
        api.add_middleware(CallerRates, per_minute=settings.requests_per_minute)
    api.add_middleware(Callers, entrance=api.state.entrance)
    api.add_middleware(Bodies, max_bytes=settings.max_body_bytes, seconds=settings.body_s)
    if api.state.entrance is not None:
        per_minute = _SHARING * settings.requests_per_minute
        api.add_middleware(AddressRates, per_minute=per_minute, believed=api.state.entrance.believed)
    api.add_middleware(Deadlines, seconds=settings.request_s)
    api.add_middleware(Hosts, allowed=allowed_hosts(settings.hosts, settings.public_url))
    believed = api.state.entrance.believed if api.state.entrance else ()
    api.add_middleware(AuditLog, believed=believed)  # around what refuses callers, so that it hears of that
    api.add_middleware(RequestLog)
    api.add_middleware(SecurityHeaders)
