"""The audit log: who changed something, and who was refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.edge.addresses import client_address
from api.edge.caller import caller_in
from api.edge.needs import LOOKING, needed
from api.edge.refusals import Refusals
from autotuner.core.access import AuditEntry
from autotuner.core.access import Scope as Allowed
from autotuner.core.errors import AutotunerError
from autotuner.service.access.secret import without_tokens
from autotuner.service.build import App
from autotuner.service.networks import Network

_REFUSED = (401, 403, 429)
_LONGEST = 200
"""Characters of a path that are kept."""


class AuditLog:
    """Stores an entry before the answer goes out; it stands around what refuses callers, so that it hears of that too.

    Every request that changed something has its entry, and so has every refusal; a refusal that is repeated within a
    minute has one.

    Args:
        believed: Networks of proxies that say where a request comes from.
    """

    def __init__(self, app: ASGIApp, *, believed: Sequence[Network] = ()) -> None:
        self._app = app
        self._believed = believed
        self._refusals = Refusals(time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def send_recorded(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start" and not is_answered:
                is_answered = True
                await self._record(scope, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_recorded)
        except Exception:
            if not is_answered:
                await self._record(scope, 500)
            raise

    async def _record(self, scope: Scope, status: int) -> None:
        route = scope.get("route")  # none where it was refused before
        if not (_has_changed(scope, route, status) or status in _REFUSED):
            return
        app = cast("App", scope["app"].state.autotuner)
        address = client_address(scope, self._believed)
        entry = _entry(scope, route, status, address, app.clock.now())
        if status in _REFUSED and not self._refusals.is_news(entry):
            return
        try:
            await run_in_threadpool(lambda: app.store.accounts.record(entry))
        except AutotunerError:  # what was done is done; the log has it in this line at least
            structlog.get_logger("api").exception("audit.lost", action=entry.action, caller=entry.caller, status=status)


def _has_changed(scope: Scope, route: object | None, status: int) -> bool:
    """Whether the request was let do what changes something; one of our own failures may have."""
    if scope["method"] in LOOKING or route is None or needed(route, scope["method"]) is Allowed.READ:
        return False
    return status < 400 or status >= 500


def _entry(scope: Scope, route: object | None, status: int, address: str, now: float) -> AuditEntry:
    caller = caller_in(scope)
    request_id = structlog.contextvars.get_contextvars().get("request_id", "")
    return AuditEntry(
        at=now,
        caller="" if caller is None else caller.name,
        token_id=None if caller is None else caller.token_id,
        action=str(getattr(route, "name", None) or scope["method"].lower()),
        subject=without_tokens(scope["path"])[:_LONGEST],
        status=status,
        request_id=str(request_id),
        address=address,
    )
