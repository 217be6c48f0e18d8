"""The caller of a request, found once, before the request is let in, and the address it came from."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

from autotuner.core.access import Caller
from autotuner.service.networks import Network, is_within, read_address

# The caller of a request, in its state: found once, before the request is let in.

SESSION_COOKIE = "autotuner_session"
"""Cookie of a browser that has logged in."""

LOOKING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""

PROBES = ("/api/v1/health", "/api/v1/ready")
"""Paths for monitoring; they reveal nothing and change nothing."""

_CALLER, _CSRF = "caller", "csrf"


def caller_in(scope: Scope) -> Caller | None:
    """Return the caller of the request; None before it is known, and at a path that is open to everybody."""
    caller: Caller | None = scope.get("state", {}).get(_CALLER)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    """Make ``caller_in`` return that caller from now on."""
    scope.setdefault("state", {})[_CALLER] = caller


def csrf_in(scope: Scope) -> str | None:
    """Return the token that the answer's forms must carry; None if the request came without a session."""
    token: str | None = scope.get("state", {}).get(_CSRF)
    return token


def set_csrf(scope: Scope, token: str) -> None:
    """Make ``csrf_in`` return that token from now on."""
    scope.setdefault("state", {})[_CSRF] = token


# The address of a request, also through trusted proxies.


def peer_address(scope: Scope) -> str:
    """The address that connected; empty where the server does not say (a service inside a command)."""
    return scope["client"][0] if scope.get("client") else ""


def client_address(scope: Scope, believed: Sequence[Network] = ()) -> str:
    """The address that a request comes from; empty where the server does not say.

    Args:
        scope: Of the request.
        believed: Networks of proxies. What such a peer says of who it forwards for counts, from the last address that
            it added to the first that is no such proxy; anybody else could say anything.
    """
    peer = peer_address(scope)
    forwarded = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    for earlier in reversed(forwarded):
        address = read_address(earlier)
        if address is None or not is_within(peer, believed):
            break
        peer = str(address)
    return peer
