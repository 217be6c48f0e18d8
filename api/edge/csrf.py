"""Changes that a browser asks for by its session come from our own pages: these know what another site's do not."""

from __future__ import annotations

import hashlib
import hmac

from fastapi import Request

from api.edge.caller import csrf_in
from api.errors import CrossSite

_LOOKING = ("GET", "HEAD", "OPTIONS")
_FORM = "application/x-www-form-urlencoded"


def csrf_token(secret: str) -> str:
    """What forms carry that a cookie with that secret lets in; who reads a page cannot tell the cookie from it."""
    return hmac.new(secret.encode("utf-8", "surrogateescape"), b"csrf", hashlib.sha256).hexdigest()


async def check_csrf(request: Request) -> None:
    """Dependency of every router.

    Raises:
        CrossSite: A browser's session asks for a change, without what our pages carry.
    """
    wanted = csrf_in(request.scope)
    if wanted is not None and request.method not in _LOOKING:
        check_form(request.headers.get("X-CSRF-Token") or await _field(request), wanted)


def check_form(given: str, wanted: str) -> None:
    """Return if the form is one of ours.

    Raises:
        CrossSite: It carries something else.
    """
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode()):
        raise CrossSite


async def _field(request: Request) -> str:
    if not request.headers.get("content-type", "").startswith(_FORM):
        return ""
    given = (await request.form()).get("csrf", "")
    return given if isinstance(given, str) else ""
