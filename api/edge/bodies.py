"""What a body may be: so many bytes, within so much time, and of a shape that is read at little cost.

A body is read when a route asks for it, not before who calls is known; one that is too long is not read to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.shape import check_shape
from api.errors import answer_error, answer_problem
from autotuner.core.errors import InvalidInput


class BodyRefused(HTTPException):
    """A body that is not read on; whoever reads it lets this through."""

    def __init__(self, status: HTTPStatus, answer: Callable[[Request], Response]) -> None:
        super().__init__(status.value)
        self.answer = answer


class Bodies:
    """Bounds on the body of every request."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = _Body(Headers(scope=scope), receive, max_bytes=self._max_bytes, seconds=self._seconds)
        try:
            await self._app(scope, body.receive, send)
        except BodyRefused as refused:  # read outside of any route
            await refused.answer(Request(scope))(scope, receive, send)


def answer_refused(request: Request, refused: Exception) -> Response:
    """The answer of a route whose body is not read on."""
    assert isinstance(refused, BodyRefused)
    return refused.answer(request)


class _Body:
    """The body of one request, as a single message."""

    def __init__(self, headers: Headers, receive: Receive, *, max_bytes: int, seconds: float) -> None:
        self._headers = headers
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._is_read = False

    async def receive(self) -> Message:
        """The whole body first; then what the server has to say of the connection.

        Raises:
            BodyRefused: It breaks a bound.
        """
        if self._is_read:
            return await self._receive()
        self._is_read = True
        if int(self._headers.get("content-length", 0)) > self._max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                return await self._whole()
        except TimeoutError:
            raise self._too_slow() from None

    async def _whole(self) -> Message:
        body, is_more = bytearray(), True
        while is_more:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            is_more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                raise self._too_large()
        if "json" in self._headers.get("content-type", ""):
            _check(bytes(body))
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    def _too_large(self) -> BodyRefused:
        detail = f"a body may have {self._max_bytes} bytes; this one has more"
        return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "content-too-large", detail)

    def _too_slow(self) -> BodyRefused:
        detail = f"the body did not arrive within {self._seconds:g} s"
        return _refused(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail)


def _check(body: bytes) -> None:
    try:
        check_shape(body)
    except InvalidInput as error:
        problem = error
        raise BodyRefused(HTTPStatus.UNPROCESSABLE_ENTITY, lambda request: answer_error(request, problem)) from None


def _refused(status: HTTPStatus, kind: str, detail: str) -> BodyRefused:
    return BodyRefused(status, lambda request: answer_problem(request, kind, status, detail))
