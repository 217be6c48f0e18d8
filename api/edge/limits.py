"""Limits of requests: how many, for how long, by which names of the service, and how many streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from time import time
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.caller import caller_in, client_address
from api.errors import answer_problem
from autotuner.core.access import Caller
from autotuner.core.errors import QuotaExceeded
from autotuner.service.networks import Network

# How many requests a minute: of each caller, and of each address before it is known who calls.
#
# Counted in this process's memory, in sliding windows.


class _Window:
    """At most so many of whatever a key names, within a minute."""

    def __init__(self) -> None:
        from limits import RateLimitItemPerMinute  # noqa: PLC0415  # takes a tenth of a second, which no command has
        from limits.aio.storage import MemoryStorage  # noqa: PLC0415
        from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415

        self._limit = RateLimitItemPerMinute
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def take(self, key: str, per_minute: int) -> int | None:
        """Count one more; seconds to wait where that would be too many, and nothing is counted."""
        limit = self._limit(per_minute)
        if await self._limiter.hit(limit, key):
            return None
        stats = await self._limiter.get_window_stats(limit, key)
        return max(1, ceil(stats.reset_time - time()))


class AddressRates:
    """Bounds what one address asks for, whoever it says it is; guesses at tokens have bounds of their own.

    Args:
        believed: Networks of proxies that say where a request comes from.
    """

    def __init__(self, app: ASGIApp, *, per_minute: int, believed: Sequence[Network] = ()) -> None:
        self._app = app
        self._per_minute = per_minute
        self._believed = believed
        self._window = _Window()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        address = _household(client_address(scope, self._believed))
        wait_s = await self._window.take(address, self._per_minute)
        if wait_s is not None:
            return await _too_many(scope, receive, send, wait_s, f"this address ({self._per_minute} a minute)")
        return await self._app(scope, receive, send)


class CallerRates:
    """Bounds what one caller asks for, by its quota or, without one, as all callers."""

    def __init__(self, app: ASGIApp, *, per_minute: int) -> None:
        self._app = app
        self._per_minute = per_minute
        self._window = _Window()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        caller = caller_in(scope) if scope["type"] == "http" else None
        if caller is None or not caller.name:
            return await self._app(scope, receive, send)
        per_minute = caller.quota.requests_per_minute or self._per_minute
        wait_s = await self._window.take(caller.token_id or caller.name, per_minute)
        if wait_s is not None:
            return await _too_many(scope, receive, send, wait_s, f"{caller.name} ({per_minute} a minute)")
        return await self._app(scope, receive, send)


def _household(address: str) -> str:
    """Who has one address of IPv6 has its whole /64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else address


async def _too_many(scope: Scope, receive: Receive, send: Send, wait_s: int, whose: str) -> None:
    detail = f"too many requests of {whose}; again in {wait_s} s"
    headers = {"Retry-After": str(wait_s)}
    answer = answer_problem(Request(scope), "too-many-requests", HTTPStatus.TOO_MANY_REQUESTS, detail, headers)
    await answer(scope, receive, send)


# How long a request may take until its answer begins.


class Deadlines:
    """Answers in the place of a route that is too slow; what began in time, such as a stream of events, goes on.

    A thread cannot be ended from outside: what a route does there is done, and told to nobody.
    """

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        told = _Told(send)
        route = asyncio.ensure_future(self._app(scope, receive, told.send))
        try:
            done, _ = await asyncio.wait({route}, timeout=self._seconds)
            if done or told.has_begun:
                return await route
        except asyncio.CancelledError:
            route.cancel()
            raise
        told.is_late = True
        route.add_done_callback(_log_end)
        route.cancel()
        detail = f"no answer within {self._seconds:g} s; ask for less, or later"
        answer = answer_problem(
            Request(scope), "too-slow", HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "30"}
        )
        return await answer(scope, receive, send)


class _Told:
    """What a route tells its client, until it is too late for that.

    Attributes:
        is_late: Whether the client was told otherwise.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_late = False

    async def send(self, message: Message) -> None:
        """Tell it, or nobody."""
        if not self.is_late:
            self.has_begun = True
            await self._send(message)


def _log_end(route: asyncio.Future[None]) -> None:
    error = None if route.cancelled() else route.exception()
    if error is not None:
        structlog.get_logger("api").error("request failed after its time", exc_info=error)


# How many streams of events are open: each holds a connection for as long as a sweep runs.

_WAIT_S = 10
"""What a reader who came too late is asked to wait: streams end when their sweeps do, or their pages are closed."""


class OpenStreams:
    """Counts open streams, in all and of each caller; callers who were not asked who they are count as one.

    Args:
        at_once: In all.
        per_caller: Of one caller, where the service asks who calls.
    """

    def __init__(self, *, at_once: int, per_caller: int) -> None:
        self._at_once = at_once
        self._per_caller = per_caller
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """One more stream, until the context is left. To be entered and left on the event loop alone.

        Raises:
            QuotaExceeded: So many are open.
        """
        if self._open.total() >= self._at_once:
            raise QuotaExceeded(f"{self._at_once} streams of events are open, as many as this service keeps", _WAIT_S)
        if caller.name and self._open[caller.name] >= self._per_caller:
            raise QuotaExceeded(f"{caller.name} has {self._per_caller} streams open, as many as one may", _WAIT_S)
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1
            if not self._open[caller.name]:
                del self._open[caller.name]


# Which names the service is reached by, and which pages may change something.
#
# A page of another site can send requests to a service that only its reader's browser reaches. It cannot choose their
# ``Host``, unless its own name is made to lead here (DNS rebinding); and its browser says which site it is of.

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
