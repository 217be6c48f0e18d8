"""Connections of the server, with limits on requests that a client does not finish.

This module limits the head of a request, the answer that a client leaves unread, and the number of open connections.
The application below hears of a request only when its head is complete. ``api.edge.limits`` limits bodies.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits on the connections of the server, such as the time and size of a request's head."""

    head_s: float = 10.0
    """Seconds from the first byte of a request, or from the opening of a connection, until its head must be
    complete."""
    head_bytes: int = 32_768
    """Maximum size of a request's target and header fields."""
    linger_s: float = 2.0
    """Seconds for reading the rest of an unwanted body, so that the client can read the answer."""
    unread_s: float = 30.0
    """Seconds after which a client that reads nothing of an answer is disconnected."""
    connections: int = 800
    """Maximum number of open connections; one address may have half of them. A new connection replaces the connection
    of the same address that has been sending its head for the longest time."""


def server_config(api: ASGIApp, bounds: Bounds | None = None, **more: Any) -> uvicorn.Config:
    """Return the uvicorn configuration of the service, with limits on its connections.

    The option ``proxy_headers`` of uvicorn is off. The application reads the forwarded addresses itself, because it
    knows which proxies are trusted.

    Args:
        api: The application to serve.
        bounds: Limits of a connection; None: the defaults.
        more: Further arguments of ``uvicorn.Config``.
    """
    protocol = partial(_BoundedConnection, bounds=bounds or Bounds())
    return uvicorn.Config(
        api,
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        proxy_headers=False,
        server_header=False,
        access_log=False,  # the application logs requests, once
        **more,
    )


class _HeadTooLarge(Exception):
    """Raised when the head of a request exceeds the limit; uvicorn's parser then ends the request."""


class _BoundedConnection(HttpToolsProtocol):
    def __init__(self, *args: Any, bounds: Bounds, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bounds = bounds
        self._head_bytes = 0
        self._has_begun_here = False
        self._is_between = True
        self._opened_at = 0.0
        self._head = _Timer(self.loop)
        self._linger = _Timer(self.loop)
        self._unread = _Timer(self.loop)

    # ------------------------------------------------------------------ the connection
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._is_one_too_many() and not self._has_made_room():
            self._answer(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open; close some, or try again later"
            )
            return
        self._head.start(self._bounds.head_s, self._head_is_late)
        self._opened_at = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._head, self._linger, self._unread):
            timer.stop()

    def _is_one_too_many(self) -> bool:
        num_here = len(self._of_this_address())
        return len(self.connections) > self._bounds.connections or num_here > max(1, self._bounds.connections // 2)

    def _has_made_room(self) -> bool:
        """Close the oldest connection of this address whose head is incomplete; return False if there is none.

        Normal clients send the whole head at once.
        """
        headless = [one for one in self._of_this_address() if one._head.is_running and not one.transport.is_closing()]
        if not headless:
            return False
        oldest = min(headless, key=lambda one: one._opened_at)
        oldest._answer(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the service closed this connection to make room for a newer one, because no complete "
            "request header had arrived; connect again",
        )
        return True

    def _of_this_address(self) -> list[_BoundedConnection]:
        here = self.client[0] if self.client else None
        connections = (cast("_BoundedConnection", one) for one in self.connections)
        return [one for one in connections if one.client is not None and one.client[0] == here]

    # ------------------------------------------------------------------ the head of a request
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_between and (self.cycle is None or self.cycle.response_complete):
            self._head.start(self._bounds.head_s, self._head_is_late)
        self._has_begun_here = False
        super().data_received(data)
        if self._head.is_running and not self._has_begun_here:
            self._count_unfinished(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_between = False
        self._has_begun_here = True
        self._head_bytes = 0
        self._head.start(self._bounds.head_s, self._head_is_late)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._head_bytes > self._bounds.head_bytes:
            raise _HeadTooLarge

    def _count_unfinished(self, num_bytes: int) -> None:
        """Count the bytes of a header field that has not ended, because the parser reports a field only at its end."""
        self._head_bytes += num_bytes
        if self._head_bytes > self._bounds.head_bytes and not self.transport.is_closing():
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        self._head.stop()
        super().on_headers_complete()

    def _head_is_late(self) -> None:
        seconds = f"{self._bounds.head_s:g} s"
        self._answer(HTTPStatus.REQUEST_TIMEOUT, f"the header of the request did not arrive within {seconds}")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's own words
        if self._head_bytes > self._bounds.head_bytes:
            rule = f"the request target and the header fields together are longer than {self._bounds.head_bytes} bytes"
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, rule)
        else:
            self._answer(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")

    # ------------------------------------------------------------------ unread bodies and answers
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_between = True
        self._linger.stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_between:
            self._linger.start(self._bounds.linger_s, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start(self._bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.stop()

    def _answer(self, status: HTTPStatus, detail: str) -> None:
        """Send an answer in place of the application, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_problem(status, detail))
        self.transport.close()


class _Timer:
    """A delayed function call that can be cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """True while a call is scheduled."""
        return self._handle is not None

    def start(self, delay_s: float, then: Callable[[], None]) -> None:
        """Call ``then`` after this delay, unless a call is already scheduled."""
        if self._handle is None:
            self._handle = self._loop.call_later(delay_s, then)

    def stop(self) -> None:
        """Cancel the scheduled call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _problem(status: HTTPStatus, detail: str) -> bytes:
    """Return a complete HTTP answer with a problem document."""
    title = status.phrase.capitalize()
    kind = f"urn:autotuner:problem:{status.phrase.lower().replace(' ', '-')}"
    document = {"type": kind, "title": title, "status": status.value, "detail": detail}
    body = json.dumps(document).encode()
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
