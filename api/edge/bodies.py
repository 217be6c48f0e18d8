"""What a body may be: so many bytes, within so much time, and of a shape that is read at little cost.

A body is read when a route asks for it, not before who calls is known; one that is too long is not read to its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import answer_error, answer_problem
from autotuner.core.errors import InvalidInput

# The shape of a JSON document: how deep it is, how many members its lists and objects have, how long their names are.
#
# A bound on a text belongs to the field that holds it, so it stands with that field; the body bounds all texts
# together.

MAX_DEPTH = 32
"""The deepest description of ours has 7 levels; a ``config.json`` of a model family rarely more."""

MAX_MEMBERS = 10_000
"""Of a list or an object."""

MAX_FIELD_NAME = 200
"""Characters of the name of a field."""


def check_shape(body: bytes) -> None:
    """Nothing where the document keeps the bounds, or cannot be read as JSON, which who reads it says better.

    Raises:
        InvalidInput: Naming the first place that breaks one.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return
    level = [("body", document)]
    for _ in range(MAX_DEPTH):
        level = [member for field, value in level for member in _members(field, value)]
    if level:
        raise InvalidInput(level[0][0], "...", f"must not be nested deeper than {MAX_DEPTH} levels", MAX_DEPTH)


def _members(field: str, value: object) -> Iterator[tuple[str, object]]:
    """What a value holds; of a value that holds nothing, nothing."""
    match value:
        case list() | dict() if len(value) > MAX_MEMBERS:
            raise InvalidInput(field, value, f"must have {MAX_MEMBERS} members or fewer, not {len(value)}", MAX_MEMBERS)
        case list():
            yield from ((field, member) for member in value)
        case dict():
            for name in value:
                if len(name) > MAX_FIELD_NAME:
                    rule = f"must have {MAX_FIELD_NAME} characters or fewer, not {len(name)}"
                    raise InvalidInput(field, name, rule, MAX_FIELD_NAME)
            yield from value.items()


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
