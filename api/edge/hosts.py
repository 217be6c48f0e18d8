"""Which names the service is reached by, and which pages may change something.

A page of another site can send requests to a service that only its reader's browser reaches. It cannot choose their
``Host``, unless its own name is made to lead here (DNS rebinding); and its browser says which site it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import answer_problem

_OWN = ("localhost", "*.localhost")
"""Names that always mean the machine that asks."""

_PROBES = ("/api/v1/health", "/api/v1/ready")
"""Asked by whatever watches the service, by whatever name that uses; they tell nothing and change nothing."""

_LOOKING = ("GET", "HEAD", "OPTIONS")


def allowed_hosts(named: str, public_url: str | None) -> tuple[str, ...]:
    """The names that a service is reached by: its own, those of the settings (with commas), that of its public URL."""
    listed = [name.strip().lower() for name in named.split(",") if name.strip()]
    public = urlsplit(public_url).hostname if public_url else None
    return tuple(dict.fromkeys((*_OWN, *listed, *([public] if public else []))))


class Hosts:
    """Refuses requests for a host that the service does not know, and changes that a page of another site asks for.

    An address is let through as it is: nobody can make one lead elsewhere.
    """

    def __init__(self, app: ASGIApp, *, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in _PROBES:
            return await self._app(scope, receive, send)
        headers, request = Headers(scope=scope), Request(scope)
        if not self._is_known(headers.getlist("host")):
            detail = (
                f"this service is not reached by {_first(headers)}; its operator names its hosts by AUTOTUNER_HOSTS"
            )
            answer = answer_problem(request, "unknown-host", HTTPStatus.MISDIRECTED_REQUEST, detail)
            return await answer(scope, receive, send)
        if scope["method"] not in _LOOKING and _is_of_another_site(headers):
            detail = "a page of another site asked for a change; only this service's own pages and programs may"
            return await answer_problem(request, "cross-site", HTTPStatus.FORBIDDEN, detail)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _is_known(self, hosts: Sequence[str]) -> bool:
        if len(hosts) != 1:
            return False
        name = _name(hosts[0])
        return name is not None and (_is_address(name) or any(fnmatchcase(name, known) for known in self._allowed))


def _is_of_another_site(headers: Headers) -> bool:
    """Whether a browser says so; a program says nothing."""
    origins = headers.getlist("origin")
    same = all(_place(origin) == headers["host"].lower() for origin in origins)
    return not same or headers.get("sec-fetch-site", "same-origin") in ("cross-site", "same-site")


def _place(origin: str) -> str | None:
    """Host and port of an origin; None for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name(host: str) -> str | None:
    """Without its port; None for what is no host."""
    try:
        parts = urlsplit(f"//{host}")
        return None if parts.path or parts.username is not None else (parts.hostname or "").rstrip(".") or None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _first(headers: Headers) -> str:
    return repr(headers.get("host", ""))[:100]
