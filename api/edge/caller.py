"""Who a request comes from, in its state: found out once, before it is let in."""

from __future__ import annotations

from starlette.types import Scope

from autotuner.core.access import Caller

SESSION_COOKIE = "autotuner_session"
"""What a browser that was let in sends."""

_CALLER, _CSRF = "caller", "csrf"


def caller_in(scope: Scope) -> Caller | None:
    """Who the request comes from; None before that was found out, and at a path that is open to everybody."""
    caller: Caller | None = scope.get("state", {}).get(_CALLER)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    """Have ``caller_in`` say so from now on."""
    scope.setdefault("state", {})[_CALLER] = caller


def csrf_in(scope: Scope) -> str | None:
    """What forms of the answer have to carry; None where the request came without a session."""
    token: str | None = scope.get("state", {}).get(_CSRF)
    return token


def set_csrf(scope: Scope, token: str) -> None:
    """Have ``csrf_in`` say so from now on."""
    scope.setdefault("state", {})[_CSRF] = token
