"""Finds out who calls before a request is let in."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import anyio.to_thread
from fastapi import Request, Response
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api.dashboard.render import page, wants_page
from api.edge.caller import caller_in, set_caller, set_csrf
from api.edge.csrf import csrf_token
from api.edge.entrance import Entrance
from api.errors import answer_error
from autotuner.core.access import NOBODY_ASKED
from autotuner.core.errors import AutotunerError, NotLetIn
from autotuner.service.asides.turns import asked_by

_OPEN = ("/api/v1/health", "/api/v1/ready", "/login")
"""Paths that everybody may call: probes, and where one gets in."""

_OPEN_BELOW = "/static/"
"""What pages look like is no secret, and the one for logging in needs it."""


class Callers:
    """Finds out who calls; what is further in reads it by ``caller_in``, or a route by ``CallerOf``."""

    def __init__(self, app: ASGIApp, *, entrance: Entrance | None) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            refusal = await self._refuse(scope)
            if refusal is not None:
                return await refusal(scope, receive, send)
        caller = caller_in(scope)
        with asked_by("" if caller is None else caller.name):
            return await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope) -> Response | None:
        """The answer to who is not let in; None where who calls is known, or need not be."""
        if self._entrance is None:
            set_caller(scope, NOBODY_ASKED)
            return None
        if is_open(scope["path"]):
            return None
        shown = self._entrance.shown_by(scope)
        if shown.session is not None and not self._entrance.login.judges_token(shown):
            set_csrf(scope, csrf_token(shown.session))
        try:
            set_caller(scope, await anyio.to_thread.run_sync(self._entrance.login.caller, shown))
        except AutotunerError as error:
            return _refusal(Request(scope), error)
        return None


def is_open(path: str) -> bool:
    """Whether everybody may call it."""
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def _refusal(request: Request, error: AutotunerError) -> Response:
    """A problem; to a browser that opens a page, the way to the login."""
    is_whole_page = request.method == "GET" and wants_page(request) and "part" not in request.query_params
    if not isinstance(error, NotLetIn) or not is_whole_page:
        return answer_error(request, error)
    login = f"{request.scope.get('root_path', '')}/login?next={quote(_wanted(request), safe='')}"
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A browser keeps its cookie back on the way from another site, and shows it when a page of ours leads on.
        return page(request, "arriving.html", status=HTTPStatus.UNAUTHORIZED, login=login)
    return RedirectResponse(login, HTTPStatus.SEE_OTHER, headers={"Cache-Control": "no-store"})


def _wanted(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
