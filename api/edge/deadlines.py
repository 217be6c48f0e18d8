"""How long a request may take until its answer begins."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import answer_problem


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
