"""How many requests a minute: of each caller, and of each address before it is known who calls.

Counted in this process's memory, in sliding windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from time import time

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.edge.addresses import client_address
from api.edge.caller import caller_in
from api.errors import answer_problem
from autotuner.service.networks import Network


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
