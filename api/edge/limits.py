"""Limits of requests: their rate, duration, body and host name, and the number of open event streams."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from ipaddress import ip_address
from math import ceil
from time import time
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotuner.api.edge.caller import LOOKING, PROBES, caller_in, client_address
from autotuner.api.errors import BodyTooLarge, BodyTooSlow, CrossSite, answer_error, answer_problem
from autotuner.core.access import Caller
from autotuner.core.errors import AutotunerError, InvalidInput, QuotaExceeded, TooOften
from autotuner.service.networks import Network, household

# Requests per minute: of each caller, and of each address before its caller is known.
#
# Counted in this process's memory, in sliding windows.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The number of requests that one caller or one address may send per minute."""

    key: str
    """Key that identifies the caller or the address."""
    whose: str
    """Name of the caller or the address in the message to it."""
    per_minute: int


class Rates:
    """Middleware that limits the number of requests per minute, and refuses further requests with status 429.

    Args:
        rate_of: Returns the limit that applies to a request; None if no limit applies.
    """

    def __init__(self, app: ASGIApp, *, rate_of: Callable[[Scope], Rate | None]) -> None:
        from limits.aio.storage import MemoryStorage  # noqa: PLC0415  # takes a tenth of a second, which no command has
        from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415

        self._app = app
        self._rate_of = rate_of
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        rate = self._rate_of(scope)
        wait_s = None if rate is None else await self._take(rate)
        if rate is None or wait_s is None:
            return await self._app(scope, receive, send)
        detail = (
            f"too many requests from {rate.whose} (the limit is {rate.per_minute} per minute); try again in {wait_s} s"
        )
        return await answer_error(Request(scope), TooOften(detail, wait_s))(scope, receive, send)

    async def _take(self, rate: Rate) -> int | None:
        """Count one request; if it exceeds the limit, do not count it and return the seconds to wait."""
        from limits import RateLimitItemPerMinute  # noqa: PLC0415

        limit = RateLimitItemPerMinute(rate.per_minute)
        if await self._limiter.hit(limit, rate.key):
            return None
        stats = await self._limiter.get_window_stats(limit, rate.key)
        return max(1, ceil(stats.reset_time - time()))


def rate_of_address(scope: Scope, *, per_minute: int, believed: Sequence[Network] = ()) -> Rate:
    """Return the limit on requests from one client address, whichever caller sends them.

    A failed login counts towards a separate limit.

    Args:
        scope: Scope of the request.
        per_minute: Number of requests that each address may send per minute.
        believed: Networks of trusted proxies. Such a proxy names the client of a request.
    """
    return Rate(key=household(client_address(scope, believed)), whose="this address", per_minute=per_minute)


def rate_of_caller(scope: Scope, *, per_minute: int) -> Rate | None:
    """Return the limit on requests of the caller; None if the caller is not known.

    Args:
        scope: Scope of the request.
        per_minute: Limit for a caller whose quota sets no limit of its own.
    """
    caller = caller_in(scope)
    if caller is None or not caller.name:
        return None
    per_minute = caller.quota.requests_per_minute or per_minute
    return Rate(key=caller.token_id or caller.name, whose=caller.name, per_minute=per_minute)


# The time that a request may take until its answer begins.


class Deadlines:
    """Middleware that answers with an error if a route does not begin its answer in time.

    A route that began its answer in time, such as a stream of events, may continue. A thread cannot be stopped from
    outside. If the route works in a thread, the thread runs to its end, but its result is dropped.
    """

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = _Answer(send)
        route = asyncio.ensure_future(self._app(scope, receive, started.send))
        try:
            done, _ = await asyncio.wait({route}, timeout=self._seconds)
            if done or started.has_begun:
                return await route
        except asyncio.CancelledError:
            route.cancel()
            raise
        started.is_late = True
        route.add_done_callback(_log_end)
        route.cancel()
        detail = f"the service had no answer within {self._seconds:g} s; ask for less, or try again later"
        answer = answer_problem(
            Request(scope), "too-slow", HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": "30"}
        )
        return await answer(scope, receive, send)


class _Answer:
    """Passes the messages of a route to the client, until the request's time is over.

    Attributes:
        is_late: True if the client got another answer because the time was over.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_late = False

    async def send(self, message: Message) -> None:
        """Send the message, unless the client already got another answer."""
        if not self.is_late:
            self.has_begun = True
            await self._send(message)


def _log_end(route: asyncio.Future[None]) -> None:
    error = None if route.cancelled() else route.exception()
    if error is not None:
        structlog.get_logger("api").error("request failed after its time limit", exc_info=error)


# Limits of a body: its bytes, its time, and a shape that costs little to read.
#
# It is read when a route asks for it, not before who calls is known; one that is too long is not read to its end.
# A bound on a text belongs to the field that holds it, so it stands with that field; the body bounds all texts
# together.

MAX_DEPTH = 32
"""Maximum nesting of a body. Our deepest description has 7 levels, and a ``config.json`` of a model rarely has more."""

MAX_MEMBERS = 10_000
"""Maximum number of members of a list or an object."""

MAX_FIELD_NAME = 200
"""Maximum number of characters of a field's name."""


def check_shape(body: bytes) -> None:
    """Refuse a JSON body that is nested too deeply, or has too many members or too long field names.

    A body that is not JSON passes, because the code that parses it reports that error better.

    Raises:
        InvalidInput: A limit is exceeded; the error names the first such place.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    level = [("body", document)]
    for _ in range(MAX_DEPTH):
        level = [member for field, value in level for member in _members(field, value)]
    if level:
        raise InvalidInput(level[0][0], "...", f"must have at most {MAX_DEPTH} levels of nested objects and lists")


def _members(field: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the members of a list or an object, each with its field; a list's members keep the field of the list."""
    match value:
        case list() | dict() if len(value) > MAX_MEMBERS:
            raise InvalidInput(field, value, f"must have at most {MAX_MEMBERS} members, not {len(value)}")
        case list():
            yield from ((field, member) for member in value)
        case dict():
            for name in value:
                if len(name) > MAX_FIELD_NAME:
                    rule = f"must have at most {MAX_FIELD_NAME} characters, not {len(name)}"
                    raise InvalidInput(field, name, rule)
            yield from value.items()


class BodyRefused(HTTPException):
    """Raised when the body of a request exceeds a limit.

    It is an ``HTTPException``, because FastAPI reads the body and converts all other exceptions to errors of its own.
    """

    def __init__(self, error: AutotunerError) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST)
        self.error = error


def answer_refused(request: Request, refused: Exception) -> Response:
    """Return the answer to a request whose body exceeded a limit: a problem document that names the limit."""
    assert isinstance(refused, BodyRefused)
    return answer_error(request, refused.error)


class Bodies:
    """Middleware that limits the size and the shape of every request's body, and the time that the body may take."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        body = _Body(Headers(scope=scope), receive, max_bytes=self._max_bytes, seconds=self._seconds)
        try:
            await self._app(scope, body.receive, send)
        except BodyRefused as refused:  # the body was read outside of any route
            await answer_refused(Request(scope), refused)(scope, receive, send)


class _Body:
    """The body of one request, which the route receives as a single message."""

    def __init__(self, headers: Headers, receive: Receive, *, max_bytes: int, seconds: float) -> None:
        self._headers = headers
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._is_read = False

    async def receive(self) -> Message:
        """Return the whole body first, and then the server's messages about the connection.

        Raises:
            BodyRefused: The body exceeds a limit.
        """
        if self._is_read:
            return await self._receive()
        self._is_read = True
        self._check_length(int(self._headers.get("content-length", 0)))
        try:
            async with asyncio.timeout(self._seconds):
                return await self._whole()
        except TimeoutError:
            late = BodyTooSlow(f"the body did not arrive within {self._seconds:g} s")
            raise BodyRefused(late) from None

    async def _whole(self) -> Message:
        body, is_more = bytearray(), True
        while is_more:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
            self._check_length(len(body))
        if "json" in self._headers.get("content-type", ""):
            try:
                check_shape(bytes(body))
            except InvalidInput as error:
                raise BodyRefused(error) from None
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    def _check_length(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise BodyRefused(
                BodyTooLarge(f"the body of a request may have at most {self._max_bytes} bytes, and this one has more")
            )


# The number of open event streams: each of them holds a connection for as long as a sweep runs.

_WAIT_S = 10
"""Seconds after which a client should try again if too many streams are open; streams end with their sweeps, or when
pages close."""


class OpenStreams:
    """A counter of the open streams of events, in total and for each caller.

    Without a login, there is no limit for each caller.

    Args:
        at_once: Maximum number of open streams in total.
        per_caller: Maximum number of open streams of one caller, if the service has a login.
    """

    def __init__(self, *, at_once: int, per_caller: int) -> None:
        self._at_once = at_once
        self._per_caller = per_caller
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """Count one more open stream while the context lasts; the context must be entered and left on the event loop.

        Raises:
            QuotaExceeded: The maximum number of streams is open already, in total or for this caller.
        """
        if self._open.total() >= self._at_once:
            raise QuotaExceeded(
                f"{self._at_once} event streams are open, which is the limit of this service; close one, or "
                "try again later",
                _WAIT_S,
            )
        if caller.name and self._open[caller.name] >= self._per_caller:
            raise QuotaExceeded(
                f"{caller.name} has {self._per_caller} open event streams, which is the limit for one "
                "caller; close one",
                _WAIT_S,
            )
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1
            if not self._open[caller.name]:
                del self._open[caller.name]


# Host names of the service, and the pages that may send changes.
#
# A page of another site can send requests to a service that only its reader's browser reaches. It cannot choose their
# ``Host``, unless its own name is made to lead here (DNS rebinding); and its browser says which site it is of.

_OWN = ("localhost", "*.localhost")
"""Host names that always mean the client's own machine."""


_OTHER_SITE = (
    "a page of another site asked for a change; only the pages of this service and programs may ask for changes"
)


def allowed_hosts(named: str, public_url: str | None) -> tuple[str, ...]:
    """Return the host names that requests may be sent to: ``localhost``, the given names, and the public URL's host.

    Args:
        named: Names from the settings, separated by commas; ``*`` matches any text.
        public_url: Public URL of the service; None if it has none.
    """
    listed = [name.strip().lower() for name in named.split(",") if name.strip()]
    public = urlsplit(public_url).hostname if public_url else None
    return tuple(dict.fromkeys((*_OWN, *listed, *([public] if public else []))))


class Hosts:
    """Middleware that refuses requests to unknown host names, and changes that a page of another site asks for.

    The check of host names prevents DNS rebinding: an attacker can make a name lead to the service, but not an IP
    address. A request to an IP address is therefore allowed.
    """

    def __init__(self, app: ASGIApp, *, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] in PROBES:  # monitoring may use any name of the service
            return await self._app(scope, receive, send)
        headers, request = Headers(scope=scope), Request(scope)
        if not self._is_known(headers.getlist("host")):
            asked = repr(headers.get("host", ""))[:100]
            detail = (
                f"this service does not answer to the host name {asked}; its operator must add the name to "
                "AUTOTUNER_HOSTS"
            )
            answer = answer_problem(request, "unknown-host", HTTPStatus.MISDIRECTED_REQUEST, detail)
            return await answer(scope, receive, send)
        if scope["method"] not in LOOKING and _is_of_another_site(headers):
            return await answer_error(request, CrossSite(_OTHER_SITE))(scope, receive, send)
        return await self._app(scope, receive, send)

    def _is_known(self, hosts: Sequence[str]) -> bool:
        if len(hosts) != 1:
            return False
        name = _name(hosts[0])
        return name is not None and (_is_address(name) or any(fnmatchcase(name, known) for known in self._allowed))


def _is_of_another_site(headers: Headers) -> bool:
    """Return True if the browser says that another site caused the request; other programs send no such header."""
    origins = headers.getlist("origin")
    same = all(_place(origin) == headers["host"].lower() for origin in origins)
    return not same or headers.get("sec-fetch-site", "same-origin") in ("cross-site", "same-site")


def _place(origin: str) -> str | None:
    """Return the host and the port of an origin; None if the origin is not valid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name(host: str) -> str | None:
    """Return the host without its port; None if the text is not a host."""
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
