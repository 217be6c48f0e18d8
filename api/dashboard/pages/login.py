"""The pages for logging in and out; their forms work without a script."""

from __future__ import annotations

import secrets
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Form, Query, Request, Response
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.render import page
from autotuner.api.edge.auth import OPEN, Entrance, check_form, needs
from autotuner.api.edge.caller import SESSION_COOKIE, set_caller
from autotuner.api.errors import CrossSite
from autotuner.core.access import Scope
from autotuner.core.errors import TooOften, Unauthenticated

router = APIRouter(include_in_schema=False, default_response_class=Response)

_FORM_COOKIE = "autotuner_login"
"""Name of a cookie whose value the login form repeats. Another site can send this form, but it neither knows nor sets
the value."""

_FORM_S = 3600

_HOME = "/"

_LONGEST = 2000
"""Maximum number of characters of a path to open after the login; servers and browsers accept little more."""

_STATUSES = {
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    CrossSite: HTTPStatus.FORBIDDEN,
    TooOften: HTTPStatus.TOO_MANY_REQUESTS,
}


@router.get("/login", openapi_extra=OPEN)
async def login_page(request: Request, wanted: Annotated[str, Query(alias="next")] = _HOME) -> Response:
    """Show the form for a token; callers who are logged in are redirected to the page that they wanted."""
    entrance = _entrance(request)
    if entrance is None or await _is_let_in(request, entrance):
        return _go_on(request, wanted)
    return _form(request, wanted)


@router.post("/login", openapi_extra=OPEN)
async def log_in(
    request: Request,
    token: Annotated[str, Form()] = "",  # without a maximum length, since an error would show the token
    csrf: Annotated[str, Form()] = "",
    wanted: Annotated[str, Form(alias="next")] = _HOME,
) -> Response:
    """Start a session if the token of the form is valid, and set its cookie; otherwise show the form again."""
    entrance = _entrance(request)
    if entrance is None:
        return _go_on(request, wanted)
    shown = entrance.shown_by(request.scope)
    try:
        check_form(csrf, request.cookies.get(_FORM_COOKIE) or secrets.token_hex())
        session, secret = await anyio.to_thread.run_sync(entrance.login.open_session, token.strip(), shown.address)
        let_in = replace(shown, authorization=None, session=secret, names=())
        set_caller(request.scope, await anyio.to_thread.run_sync(entrance.login.caller, let_in))  # for the audit log
    except (Unauthenticated, CrossSite, TooOften) as error:
        return _form(request, wanted, error)
    answer = _go_on(request, wanted)
    _keep(request, answer, SESSION_COOKIE, secret, int(session.expires_at - session.created_at))
    answer.delete_cookie(_FORM_COOKIE, path=_path(request))
    return answer


@router.post("/logout", openapi_extra=needs(Scope.READ))
async def log_out(request: Request) -> Response:
    """End the session of the browser, so that no copy of its cookie is valid any more."""
    entrance, secret = _entrance(request), request.cookies.get(SESSION_COOKIE)
    if entrance is not None and secret is not None:
        await anyio.to_thread.run_sync(entrance.login.close_session, secret)
    answer = RedirectResponse(f"{request.scope.get('root_path', '')}/login", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(SESSION_COOKIE, path=_path(request))
    return answer


def _entrance(request: Request) -> Entrance | None:
    entrance: Entrance | None = request.app.state.entrance
    return entrance


async def _is_let_in(request: Request, entrance: Entrance) -> bool:
    try:
        await anyio.to_thread.run_sync(entrance.login.caller, entrance.shown_by(request.scope))
    except (Unauthenticated, TooOften):
        return False
    return True


def _form(request: Request, wanted: str, error: Exception | None = None) -> Response:
    csrf = request.cookies.get(_FORM_COOKIE) or secrets.token_urlsafe()
    status = HTTPStatus.OK if error is None else _STATUSES[type(error)]
    answer = page(request, "login.html", status=status, wanted=_local(wanted), form_csrf=csrf, error=error)
    _keep(request, answer, _FORM_COOKIE, csrf, _FORM_S)
    if isinstance(error, TooOften):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


def _go_on(request: Request, wanted: str) -> Response:
    root = request.scope.get("root_path", "")
    where = _local(wanted)
    return RedirectResponse(where if where.startswith(f"{root}/") else f"{root}/", HTTPStatus.SEE_OTHER)


def _local(path: str) -> str:
    """Return the path if it belongs to this service, else the first page: a link might lead to another site."""
    is_local = (
        len(path) <= _LONGEST
        and path.startswith("/")
        and not path.startswith("//")
        and "\\" not in path
        and path.isprintable()
    )
    return path if is_local else _HOME


def _keep(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    entrance = _entrance(request)
    assert entrance is not None  # without an entrance, there is no session
    is_https = entrance.is_https(request.scope)
    answer.set_cookie(
        name, value, max_age=seconds, path=_path(request), secure=is_https, httponly=True, samesite="strict"
    )


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"
