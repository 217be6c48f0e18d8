"""Finds out who calls before a request is let in."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from api.edge.caller import set_caller
from autotuner.domain.access.caller import NOBODY_ASKED

__all__ = ["Callers"]


class Callers:
    """Finds out who calls; what is further in reads it by ``caller_in``, or a route by ``CallerOf``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            set_caller(scope, NOBODY_ASKED)
        await self._app(scope, receive, send)
