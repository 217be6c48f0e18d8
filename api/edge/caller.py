"""The caller of a request and the address it came from, found once before the request reaches a route."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

from autotuner.core.access import Caller
from autotuner.service.networks import Network, is_within, read_address

# The caller of a request, in its state: found once, before the request is let in.

SESSION_COOKIE = "autotuner_session"
"""Name of the cookie of a browser that has logged in."""

LOOKING = ("GET", "HEAD", "OPTIONS")
"""HTTP methods that change nothing."""

PROBES = ("/api/v1/health", "/api/v1/ready")
"""Paths for monitoring; they reveal nothing and change nothing."""

_CALLER, _CSRF = "caller", "csrf"


def caller_in(scope: Scope) -> Caller | None:
    """Return the caller of a request; None before authentication, and for a path that is open to everybody."""
    caller: Caller | None = scope.get("state", {}).get(_CALLER)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    """Store the authenticated caller in the scope of a request, where ``caller_in`` finds the caller."""
    scope.setdefault("state", {})[_CALLER] = caller


def csrf_in(scope: Scope) -> str | None:
    """Return the CSRF token that forms in the answer must carry; None if the request came without a session."""
    token: str | None = scope.get("state", {}).get(_CSRF)
    return token


def set_csrf(scope: Scope, token: str) -> None:
    """Store the CSRF token of a browser session in the scope of a request, where ``csrf_in`` finds it."""
    scope.setdefault("state", {})[_CSRF] = token


# The address of a request, also through trusted proxies.


def peer_address(scope: Scope) -> str:
    """Return the address of the other end of the connection, which may be a proxy.

    It is empty if the address is not known, as for a service inside the process of a command.
    """
    return scope["client"][0] if scope.get("client") else ""


def client_address(scope: Scope, believed: Sequence[Network] = ()) -> str:
    """Return the address of the client that sent a request; empty if the server does not know it.

    Args:
        scope: Scope of the request.
        believed: Networks of trusted proxies. Each proxy adds an address to the header ``X-Forwarded-For``. The header
            is read from its end back to the first address that is not a trusted proxy; this is the client. If the
            other end of the connection is not a trusted proxy, the header is ignored, since it could be forged.
    """
    peer = peer_address(scope)
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    for earlier in reversed(forwarded):
        address = read_address(earlier)
        if address is None or not is_within(peer, believed):
            break
        peer = str(address)
    return peer
