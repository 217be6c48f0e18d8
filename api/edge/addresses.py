"""Where a request comes from, also through proxies that are believed."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from autotuner.service.networks import Address, Network, is_within


def client_address(scope: Scope, believed: Sequence[Network] = ()) -> str:
    """The address that a request comes from; empty where the server does not say (a service inside a command).

    Args:
        scope: Of the request.
        believed: Networks of proxies. What such a peer says of who it forwards for counts, from the last address that
            it added to the first that is no such proxy; anybody else could say anything.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    for earlier in reversed(forwarded):
        address = _address(earlier)
        if address is None or not is_within(peer, believed):
            break
        peer = str(address)
    return peer


def _address(text: str) -> Address | None:
    try:
        return ip_address(text.strip())
    except ValueError:
        return None
