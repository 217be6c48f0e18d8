"""Entrance: what a service that asks who calls looks at, and whom it asks."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from api.edge.addresses import client_address
from api.edge.caller import SESSION_COOKIE
from autotuner.service.access.login import Login, Shown
from autotuner.service.networks import Network, is_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Where callers are told apart.

    Attributes:
        header: By which a proxy names callers; None without one.
        believed: Networks of proxies.
        is_public_https: Whether people reach the service by https, as its operator says.
    """

    login: Login
    header: str | None = None
    believed: tuple[Network, ...] = ()
    is_public_https: bool = False

    def shown_by(self, scope: Scope) -> Shown:
        """What a request shows of who sends it."""
        headers = Headers(scope=scope)
        return Shown(
            address=client_address(scope, self.believed),
            peer=_peer(scope),
            authorization=headers.get("authorization"),
            session=cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE),
            names=headers.getlist(self.header) if self.header else (),
        )

    def is_https(self, scope: Scope) -> bool:
        """Whether the request came by https, also through a proxy that ended it; a cookie is then kept to that."""
        forwarded = Headers(scope=scope).get("x-forwarded-proto") if is_within(_peer(scope), self.believed) else None
        return self.is_public_https or (forwarded or scope["scheme"]) == "https"


def _peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""
