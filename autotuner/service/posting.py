"""Posting: sends a body once, within limits, to a URL that a user chose.

The service sends from inside its network, so a URL that a user chose must not reach the hosts there. Therefore it only
posts to addresses of the public internet, and to networks that the operator allows.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Event
from typing import Protocol

import anyio
import httpx
from anyio.from_thread import start_blocking_portal

from autotuner.core.announcement import WebhookAnswer
from autotuner.core.errors import InvalidInput
from autotuner.runs.delivery import POST_S
from autotuner.service.networks import Address, Network, is_held, read_address, unmapped

WEBHOOK_ALLOW = "AUTOTUNER_WEBHOOK_ALLOW"
"""Setting by which an operator allows further networks."""

_SPECIAL = tuple(
    ip_network(text)
    for text in (
        "168.63.129.16/32",  # services for virtual machines of Azure, by its documentation
        "192.0.0.0/24",  # IETF protocol assignments, RFC 6890; metadata of Oracle's cloud
        "192.88.99.0/24",  # 6to4 relays, deprecated by RFC 7526
        "3fff::/20",  # documentation, RFC 9637
    )
)
"""Networks that are not part of the public internet, although their numbers or this Python version say so."""

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""Range of IPv6 addresses that IANA assigns (RFC 4291, section 2.4)."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses by which a network without IPv4 reaches IPv4 addresses (RFC 6052)."""


def refusal(address: str, allowed: Sequence[Network]) -> str | None:
    """Return the reason why nothing may be posted to an address, as a sentence, or None if posts are allowed.

    ``allowed`` holds the networks that the operator allows in addition to the public internet.
    """
    one = ip_address(address)
    if is_public(one) or is_allowed(one, allowed):
        return None
    return f"{one} is {_kind(one)}, to which only the operator can allow posts ({WEBHOOK_ALLOW})"


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Return True if one of the networks that the operator allows contains the address."""
    return is_held(_plain(address), allowed)


def is_public(address: Address) -> bool:
    """Return True if the address belongs to one host on the public internet."""
    plain = _plain(address)
    if is_held(plain, _SPECIAL):
        return False
    if isinstance(plain, IPv6Address) and (plain not in _GLOBAL_UNICAST or plain.sixtofour is not None):
        return False
    return plain.is_global and not plain.is_multicast and not plain.is_reserved


def _plain(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address that carries one; else return the address itself."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return unmapped(address)


def _kind(address: Address) -> str:
    plain = _plain(address)
    kinds = {
        "the loopback address of the service's own machine": plain.is_loopback,
        "a link-local address, where clouds answer with credentials": plain.is_link_local,
        "a multicast address": plain.is_multicast,
        "a private address": plain.is_private and not plain.is_unspecified,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "not an address of the public internet")


Resolver = Callable[[str, int], Sequence[str]]
"""Function that returns the addresses of a host and port; it raises ``OSError`` if there are none."""

_LONGEST = 2000
"""Maximum number of characters of a URL; no receiver needs more."""

_MAX_PORT = 2**16 - 1


class Refused(Exception):
    """Raised when nothing may be posted to a destination. The message is the reason, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A checked URL for a post, with the IP addresses of its host."""

    url: httpx.URL
    """URL as the caller gave it."""
    addresses: tuple[str, ...]
    """Addresses of the URL's host, all of which are allowed. Connections go to these addresses; the name is not looked
    up again."""
    is_public: bool
    """True if all addresses belong to the public internet."""


def check_url(url: str, allowed: Sequence[Network]) -> None:
    """Raise an error if a webhook must not have this URL. Only the text of the URL is checked; no host is looked up.

    Raises:
        InvalidInput: The text is not a URL with a host, has an impossible port, contains a password, uses http although
            only the public internet is allowed, or names an address to which posts are not allowed.
    """
    parsed = _parsed(url)
    _require_port(parsed)
    if parsed.scheme == "http" and not allowed:
        rule = "must begin with https; http is only for networks that the operator allows (AUTOTUNER_WEBHOOK_ALLOW)"
        raise InvalidInput("url", origin(url), rule, f"https://{parsed.host}")
    address = read_address(parsed.host)  # None: a name, which is looked up when something is posted
    if address is not None and (why := _why_refused(parsed, (str(address),), allowed)):
        raise InvalidInput("url", origin(url), why)


def destination(url: str, allowed: Sequence[Network], resolve: Resolver) -> Destination:
    """Look up the host of a URL once, and return the URL with the addresses of the host.

    Raises:
        Refused: Posts to one of the addresses are not allowed, or the host has no address.
        InvalidInput: ``check_url`` does not accept the URL. An older release may have accepted it.
    """
    parsed = _parsed(url)
    _require_port(parsed)
    try:
        addresses = tuple(dict.fromkeys(resolve(parsed.raw_host.decode("ascii"), port(parsed))))
    except (OSError, UnicodeError) as error:
        raise Refused(f"the host {parsed.host} has no address ({error}); check its name") from error
    if not addresses:
        raise Refused(f"the host {parsed.host} has no address; check its name")
    if why := _why_refused(parsed, addresses, allowed):
        raise Refused(why)
    return Destination(url=parsed, addresses=addresses, is_public=all(is_public(ip_address(a)) for a in addresses))


def origin(url: str) -> str:
    """Return only the scheme, host and port of a URL, because the rest often contains a credential."""
    parsed = _parsed(url)
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"


def port(url: httpx.URL) -> int:
    """Return the port of a connection to the URL: the port in the URL, or the default port of its scheme."""
    return url.port or (443 if url.scheme == "https" else 80)


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses that the resolver of this machine finds for a host name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
        host = parsed.host if parsed.netloc else ""  # both fail for a text that only looks like a host
    except (httpx.InvalidURL, UnicodeError) as error:
        rule = f"must be a URL, for example https://hooks.example.com/autotuner ({error})"
        raise InvalidInput("url", url, rule) from error
    if parsed.scheme not in ("https", "http") or not host or len(url) > _LONGEST:
        rule = (
            f"must be a URL that begins with https, has a host, and has at most {_LONGEST} characters, for example "
            "https://hooks.example.com/autotuner"
        )
        raise InvalidInput("url", url, rule)
    if parsed.userinfo:
        raise InvalidInput("url", "…", "must not contain a user name or a password")
    return parsed


def _require_port(url: httpx.URL) -> None:
    """Raise an error if the URL names a port that does not exist."""
    if url.port is not None and not 1 <= url.port <= _MAX_PORT:
        usual = port(url.copy_with(port=None))
        rule = f"must have a port from 1 to {_MAX_PORT}, or no port, which means {usual}"
        raise InvalidInput("url", origin(str(url)), rule)


def _why_refused(url: httpx.URL, addresses: Sequence[str], allowed: Sequence[Network]) -> str | None:
    """Return why a host is refused, or None. A single refused address is enough."""
    if whys := [why for address in addresses if (why := refusal(address, allowed))]:
        return whys[0]
    if url.scheme == "http" and not all(is_allowed(ip_address(address), allowed) for address in addresses):
        return "http without TLS is only for networks that the operator allows (AUTOTUNER_WEBHOOK_ALLOW)"
    return None


_MOST_BYTES = 2048
"""Maximum number of bytes that are read of an answer; the rest is never requested."""

_LOOK_S = 0.1
"""Seconds between two checks whether a post is still wanted."""

_SHOWN = 200
"""Number of characters kept of a public receiver's answer."""


class Flag(Protocol):
    """The interface of an object that says whether a post must stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Return True once the work that looks at this flag must stop."""
        ...


class Poster:
    """Sends HTTP posts to allowed addresses. It follows no redirects, uses no proxies and limits the length of answers.

    Args:
        allowed: Networks that are allowed in addition to the public internet.
        resolve: Looks up the addresses of a host name, once for each post.
        tls: The certificates to trust; None: those of httpx, including ``SSL_CERT_FILE``.
        limit_s: Longest time in seconds for a whole post, without the look-up.
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

    def post(self, url: str, body: bytes, headers: Mapping[str, str], stop: Flag | None = None) -> WebhookAnswer | None:
        """Post the body with the given headers, and return the answer or the reason why there is no answer.

        Another thread may set ``stop`` to end the wait for an answer; then the result is None.
        """
        try:
            there = destination(url, self._allowed, self._resolve)
        except Refused as refused:
            return WebhookAnswer(status=None, detail=f"not posted: {refused}")
        with start_blocking_portal() as portal:  # a thread with its own event loop
            return portal.call(self._post_unless, there, body, headers, stop or Event())

    async def _post_unless(
        self, there: Destination, body: bytes, headers: Mapping[str, str], stop: Flag
    ) -> WebhookAnswer | None:
        answer: WebhookAnswer | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on, stop, tasks.cancel_scope)
            answer = await self._post_within(there, body, headers)
            tasks.cancel_scope.cancel()
        return answer

    async def _post_within(self, there: Destination, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        try:
            with anyio.fail_after(self._limit_s):
                return await self._post_to_any(there, body, headers)
        except TimeoutError:
            return WebhookAnswer(status=None, detail=f"no answer within {self._limit_s:g} s")
        except httpx.HTTPError as error:
            return WebhookAnswer(status=None, detail=f"no answer: {_one_line(str(error)) or type(error).__name__}")

    async def _post_to_any(self, there: Destination, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """Post the body to the first address that accepts a connection."""
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
) -> WebhookAnswer:
    """Post to this address, with the URL's host name in the ``Host`` header and in the check of the certificate."""
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


def _answer(response: httpx.Response, said: bytes) -> WebhookAnswer:
    """Return the status and one line of the answer.

    For a receiver inside the operator's networks, ``said`` is empty.
    """
    text = _one_line(said.decode("utf-8", "replace"))
    status = f"HTTP {response.status_code} {_phrase(response.status_code)}".rstrip()
    wait = response.headers.get("Retry-After", "")
    return WebhookAnswer(
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
