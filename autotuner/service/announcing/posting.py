"""Poster: sends a body to a URL that somebody else chose, once, within limits."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from threading import Event
from typing import Protocol

import anyio
import httpx
from anyio.from_thread import start_blocking_portal

from autotuner.core.announcement import Answer
from autotuner.runs.delivery import POST_S
from autotuner.service.announcing.destination import Destination, Refused, Resolver, destination, system_resolver
from autotuner.service.networks import Network

_MOST_BYTES = 2048
"""Read of an answer; the rest is never asked for."""

_LOOK_S = 0.1
"""How often a post looks whether it is still wanted."""

_SHOWN = 200
"""Characters kept of what a public receiver said."""


class Flag(Protocol):
    """Says whether something that is under way is still wanted; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return True once it is not."""
        ...


class Poster:
    """Posts to addresses that are allowed, without redirects, proxies or answers of any length.

    Args:
        allowed: Networks beside the public internet.
        resolve: Looks names up, once for each post.
        tls: Whom certificates are trusted from; None: as httpx has it, ``SSL_CERT_FILE`` included.
        limit_s: For all of a post but the look-up.
    """

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        *,
        resolve: Resolver = system_resolver,
        tls: ssl.SSLContext | None = None,
        limit_s: float = POST_S,
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._tls = tls
        self._limit_s = limit_s

    def post(self, url: str, body: bytes, headers: Mapping[str, str], stop: Flag | None = None) -> Answer | None:
        """Post the body and say how that ended.

        Args:
            url: Where.
            body: What.
            headers: Beside our own.
            stop: Set from another thread, it ends the wait for an answer; None comes back then.
        """
        try:
            there = destination(url, self._allowed, self._resolve)
        except Refused as refused:
            return Answer(status=None, detail=f"not posted: {refused}")
        with start_blocking_portal() as portal:  # a thread with a loop: the caller's own may have one
            return portal.call(self._post_unless, there, body, headers, stop or Event())

    async def _post_unless(
        self, there: Destination, body: bytes, headers: Mapping[str, str], stop: Flag
    ) -> Answer | None:
        answer: Answer | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on, stop, tasks.cancel_scope)
            answer = await self._post_within(there, body, headers)
            tasks.cancel_scope.cancel()
        return answer

    async def _post_within(self, there: Destination, body: bytes, headers: Mapping[str, str]) -> Answer:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        try:
            with anyio.fail_after(self._limit_s):
                return await self._post_to_any(there, body, headers)
        except TimeoutError:
            return Answer(status=None, detail=f"no answer within {self._limit_s:g} s")
        except httpx.HTTPError as error:
            return Answer(status=None, detail=f"no answer: {_one_line(str(error)) or type(error).__name__}")

    async def _post_to_any(self, there: Destination, body: bytes, headers: Mapping[str, str]) -> Answer:
        """By the first address that takes a connection."""
        assert self._tls is not None
        async with httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,  # a proxy of the environment would look the name up again
            follow_redirects=False,
            timeout=self._limit_s,
        ) as client:
            for address in there.addresses[:-1]:
                try:
                    return await _post(client, there, address, body, headers)
                except httpx.ConnectError:
                    continue
            return await _post(client, there, there.addresses[-1], body, headers)


async def _cancel_on(stop: Flag, scope: anyio.CancelScope) -> None:
    while not stop.is_set():
        await anyio.sleep(_LOOK_S)
    scope.cancel()


async def _post(
    client: httpx.AsyncClient, there: Destination, address: str, body: bytes, headers: Mapping[str, str]
) -> Answer:
    """To that address, by the name of the URL: in the header ``Host``, and for the certificate."""
    request = client.build_request(
        "POST",
        there.url.copy_with(host=address),
        content=body,
        headers=_HEADERS | {"Host": there.url.netloc.decode("ascii")} | dict(headers),
        extensions={"sni_hostname": there.url.raw_host.decode("ascii")},
    )
    response = await client.send(request, stream=True)
    try:
        return _answer(response, await _first_bytes(response) if there.is_public else b"")
    finally:
        await response.aclose()


_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "parallelism-autotuner",
    "Accept-Encoding": "identity",  # a small answer must not unpack to a large one
}


async def _first_bytes(response: httpx.Response) -> bytes:
    read = b""
    async for part in response.aiter_raw():
        read += part
        if len(read) >= _MOST_BYTES:
            break
    return read[:_MOST_BYTES]


def _answer(response: httpx.Response, said: bytes) -> Answer:
    """What a receiver inside the operator's networks says stays there; its status is enough."""
    text = _one_line(said.decode("utf-8", "replace"))
    status = f"HTTP {response.status_code} {_phrase(response.status_code)}".rstrip()
    wait = response.headers.get("Retry-After", "")
    return Answer(
        status=response.status_code,
        detail=f"{status}: {text}" if text and response.is_error else status,
        retry_after_s=float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 7 else None,
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.split())[:_SHOWN]
