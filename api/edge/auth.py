"""Identifies the caller of a request, and checks the scope that each route needs."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import Depends, Request, Response
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from autotuner.api.dashboard.render import page, wants_page
from autotuner.api.edge.caller import (
    LOOKING,
    PROBES,
    SESSION_COOKIE,
    caller_in,
    client_address,
    csrf_in,
    peer_address,
    set_caller,
    set_csrf,
)
from autotuner.api.errors import CrossSite, answer_error
from autotuner.core.access import NOBODY_ASKED, Scope
from autotuner.core.errors import AutotunerError, InvalidInput, NotAllowed, Unauthenticated
from autotuner.service.authentication import (
    Login,
    Proxy,
    Shown,
    check_alone,
    check_lets_an_admin_in,
    install_token_file,
)
from autotuner.service.build import App
from autotuner.service.compute import asked_by
from autotuner.service.networks import Network, is_within, read_networks
from autotuner.service.settings import Settings

# Entrance: the login of a service, and the proxies that it trusts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """The login of the service at its HTTP edge: it reads the credentials in a request, and ``login`` checks them."""

    login: Login
    header: str | None = None
    """Header in which a proxy names the caller; None without such a proxy."""
    believed: tuple[Network, ...] = ()
    """Networks of the proxies whose headers are trusted."""
    is_public_https: bool = False
    """True if the operator says that people reach the service by https."""

    def shown_by(self, scope: Connection) -> Shown:
        """Return the credentials in a request: a token, a session cookie, or the user name that a proxy adds."""
        headers = Headers(scope=scope)
        return Shown(
            address=client_address(scope, self.believed),
            peer=peer_address(scope),
            authorization=headers.get("authorization"),
            session=cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE),
            names=headers.getlist(self.header) if self.header else (),
        )

    def is_https(self, scope: Connection) -> bool:
        """Return True if the caller used https, even if a trusted proxy forwards the request without it.

        Cookies are then marked as secure.
        """
        forwarded = (
            Headers(scope=scope).get("x-forwarded-proto") if is_within(peer_address(scope), self.believed) else None
        )
        return self.is_public_https or (forwarded or scope["scheme"]) == "https"


# Protection against CSRF: a change by a browser's session must come from our own pages, which know a secret token.

_FORM = "application/x-www-form-urlencoded"


def csrf_token(secret: str) -> str:
    """Return the CSRF token for the forms of a session. The token does not reveal the secret of the session."""
    return hmac.new(secret.encode("utf-8", "surrogateescape"), b"csrf", hashlib.sha256).hexdigest()


async def check_csrf(request: Request) -> None:
    """Refuse a change that a browser's session asks for without a valid CSRF token. Every router has this dependency.

    Raises:
        CrossSite: The request changes something, and its header or form has no valid CSRF token.
    """
    wanted = csrf_in(request.scope)
    if wanted is not None and request.method not in LOOKING:
        check_form(request.headers.get("X-CSRF-Token") or await _field(request), wanted)


def check_form(given: str, wanted: str) -> None:
    """Refuse a form whose CSRF token is not the expected one.

    Args:
        given: Token that the form carries.
        wanted: Token of the session.

    Raises:
        CrossSite: The tokens differ.
    """
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode()):
        raise CrossSite(
            "this form was not sent by a page of this session; load the page again and send the form from there"
        )


async def _field(request: Request) -> str:
    if not request.headers.get("content-type", "").startswith(_FORM):
        return ""
    given = (await request.form()).get("csrf", "")
    return given if isinstance(given, str) else ""


# Identifies the caller before a request reaches a route.

_OPEN = (*PROBES, "/login")
"""Paths that everybody may call: health probes and the login."""

_OPEN_BELOW = "/static/"
"""Path prefix that everybody may read: style sheets are no secret, and the login page needs them."""


class Callers:
    """Middleware that authenticates the caller of each request, and stores the caller in the scope of the request.

    A route gets the caller as a parameter of type ``CallerOf``; ``caller_in`` reads the caller from the scope.
    """

    def __init__(self, app: ASGIApp, *, entrance: Entrance | None) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = await self._refuse(scope)
        if refusal is not None:
            return await refusal(scope, receive, send)
        caller = caller_in(scope)
        with asked_by("" if caller is None else caller.name):
            return await self._app(scope, receive, send)

    async def _refuse(self, scope: Connection) -> Response | None:
        """Return the refusal for an unknown caller; None if the caller is known or the path is open."""
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
    """Return True if everybody may call the path without a login, such as the login page and the health probes."""
    return path in _OPEN or path.startswith(_OPEN_BELOW)


def _refusal(request: Request, error: AutotunerError) -> Response:
    """Return a problem document; redirect a browser that opens a page to the login."""
    is_whole_page = request.method == "GET" and wants_page(request) and "part" not in request.query_params
    if not isinstance(error, Unauthenticated) or not is_whole_page:
        return answer_error(request, error)
    login = f"{request.scope.get('root_path', '')}/login?next={quote(_wanted(request), safe='')}"
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A browser sends no cookie with a link from another site, but sends it when our own page redirects.
        return page(request, "arriving.html", status=HTTPStatus.UNAUTHORIZED, login=login)
    return RedirectResponse(login, HTTPStatus.SEE_OTHER, headers={"Cache-Control": "no-store"})


def _wanted(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


# The login of a service, as its settings ask for it.

PROXY_NETWORKS = "AUTOTUNER_PROXY_NETWORKS"


def entrance_of(app: App) -> Entrance | None:
    """Return the authentication of the service that its settings describe; None if the service has no login."""
    settings = app.settings
    if settings.login == "none":
        return None
    proxy = _proxy(settings) if settings.login == "proxy" else None
    return Entrance(
        login=Login(app.store.access, app.clock, proxy=proxy),
        header=None if proxy is None else proxy.header,
        believed=read_networks(settings.proxy_networks, PROXY_NETWORKS),
        is_public_https=(settings.public_url or "").lower().startswith("https:"),
    )


def check_start(app: App, host: str) -> None:
    """Check that the settings for login suit the address that the service listens on.

    Args:
        app: The application with its settings. If the settings name an admin token, the token is stored.
        host: Address that the service will listen on.

    Raises:
        InvalidInput: With these settings, everybody who reaches the service could use it, or nobody could. The
            message says which setting to change.
    """
    settings = app.settings
    if settings.login == "none":
        return check_alone(host)
    if settings.admin_token_file is not None:
        install_token_file(app.tokens, settings.admin_token_file)
    if settings.login == "tokens":
        return check_lets_an_admin_in(app.tokens)
    _proxy(settings)
    return None


def _proxy(settings: Settings) -> Proxy:
    if not settings.proxy_header:
        rule = (
            "must be the name of the header in which the proxy sends the caller's name, for example "
            "X-Forwarded-User, because AUTOTUNER_LOGIN is proxy"
        )
        raise InvalidInput("AUTOTUNER_PROXY_HEADER", settings.proxy_header, rule)
    networks = read_networks(settings.proxy_networks, PROXY_NETWORKS)
    if not networks:
        rule = (
            "must name the networks of the proxy, for example 127.0.0.1, because otherwise anybody could send the "
            "name of another caller"
        )
        raise InvalidInput(PROXY_NETWORKS, settings.proxy_networks, rule)
    admins = frozenset(filter(None, map(str.strip, settings.proxy_admins.split(","))))
    return Proxy(header=settings.proxy_header, networks=networks, scope=settings.proxy_scope, admins=admins)


# The scope that a caller needs for a route: by the method, unless the route declares another.

OPEN: dict[str, Any] = {"security": []}
"""``openapi_extra`` of a route that everybody may call."""


def needs(scope: Scope) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route that does not need the default scope of its HTTP method.

    By default GET, HEAD and OPTIONS need ``read``, and all other methods need ``run``.
    """
    return {"security": security_of(scope)}


def security_of(scope: Scope) -> list[dict[str, list[str]]]:
    """Return the security requirement of an OpenAPI operation: a token or a session that has the given scope."""
    return [{"token": [scope.value]}, {"session": [scope.value]}]


def needed(route: object, method: str) -> Scope | None:
    """Return the scope that callers of a route need; None if everybody may call it.

    Args:
        route: The route.
        method: HTTP method, which has a default scope if the route states none.
    """
    declared = (getattr(route, "openapi_extra", None) or {}).get("security")
    if declared is None:
        return Scope.READ if method in LOOKING else Scope.RUN
    return Scope(declared[0]["token"][0]) if declared else None


async def check_scope(request: Request) -> None:
    """Refuse a caller whose scope does not allow the route. Every router has this dependency.

    Raises:
        NotAllowed: The caller's scope is too small.
    """
    scope = needed(request.scope.get("route"), request.method)
    caller = caller_in(request.scope)
    if scope is None or (caller is not None and caller.scope.covers(scope)):
        return
    raise NotAllowed(scope.value, None if caller is None else caller.scope.value)


CHECKS = (Depends(check_scope), Depends(check_csrf))
"""Dependencies of every router: the caller has the right, and the request does not come from a page of another site."""
