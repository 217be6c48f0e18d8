"""What a caller needs to be let through to a route: by the method, unless the route says otherwise."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request
from starlette.types import Scope as Connection

from api.edge.caller import caller_in
from api.edge.csrf import check_csrf
from autotuner.core.access import Scope
from autotuner.core.errors import NotAllowed

OPEN: dict[str, Any] = {"security": []}
"""``openapi_extra`` of a route that everybody may call."""

LOOKING = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


def needs(scope: Scope) -> dict[str, Any]:
    """``openapi_extra`` of a route that needs another scope than its method says (GET read, the others run)."""
    return {"security": security_of(scope)}


def security_of(scope: Scope) -> list[dict[str, list[str]]]:
    """What an operation of OpenAPI says that a caller must show: a token or a session, each with that scope."""
    return [{"token": [scope.value]}, {"session": [scope.value]}]


def needed(route: object, method: str) -> Scope | None:
    """The scope that a caller of the route needs; None where everybody may call it."""
    declared = (getattr(route, "openapi_extra", None) or {}).get("security")
    if declared is None:
        return Scope.READ if method in LOOKING else Scope.RUN
    return Scope(declared[0]["token"][0]) if declared else None


async def check_scope(request: Request) -> None:
    """Dependency of every router.

    Raises:
        NotAllowed: The caller's scope does not cover what the route needs.
    """
    scope = _needed_by(request.scope)
    caller = caller_in(request.scope)
    if scope is None or (caller is not None and caller.scope.covers(scope)):
        return
    raise NotAllowed(scope.value, None if caller is None else caller.scope.value)


def _needed_by(connection: Connection) -> Scope | None:
    return needed(connection.get("route"), connection["method"])


CHECKS = (Depends(check_scope), Depends(check_csrf))
"""Dependencies of every router: the caller may do this, and no page of another site makes them do it."""
