"""The login of a service, as its settings ask for it."""

from __future__ import annotations

from api.edge.entrance import Entrance
from autotuner.core.errors import InvalidInput
from autotuner.service.access.login import Login
from autotuner.service.access.proxy import Proxy
from autotuner.service.access.starting import check_alone, check_lets_an_admin_in, install_token_file
from autotuner.service.build import App
from autotuner.service.networks import read_networks
from autotuner.service.settings import Settings

PROXY_NETWORKS = "AUTOTUNER_PROXY_NETWORKS"


def entrance_of(app: App) -> Entrance | None:
    """Where callers are told apart; None where nobody is asked."""
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
    """Return if the service may listen on that address.

    Raises:
        InvalidInput: It would let in everybody who reaches it, or nobody; the message says what to set.
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
        rule = "must name the header by which the proxy says who calls, where AUTOTUNER_LOGIN is proxy"
        raise InvalidInput("AUTOTUNER_PROXY_HEADER", settings.proxy_header, rule, "X-Forwarded-User")
    networks = read_networks(settings.proxy_networks, PROXY_NETWORKS)
    if not networks:
        rule = "must name where the proxy connects from, or anybody could say who they are"
        raise InvalidInput(PROXY_NETWORKS, settings.proxy_networks, rule, "127.0.0.1")
    admins = frozenset(filter(None, map(str.strip, settings.proxy_admins.split(","))))
    return Proxy(header=settings.proxy_header, networks=networks, scope=settings.proxy_scope, admins=admins)
