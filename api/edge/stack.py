"""What stands around the routes, in order."""

from __future__ import annotations

from fastapi import FastAPI

from api.edge.audit import AuditLog
from api.edge.bodies import Bodies, BodyRefused, answer_refused
from api.edge.callers import Callers
from api.edge.deadlines import Deadlines
from api.edge.hosts import Hosts, allowed_hosts
from api.edge.rates import AddressRates, CallerRates
from api.edge.request_log import RequestLog
from api.edge.security_headers import SecurityHeaders
from api.edge.streams import OpenStreams
from autotuner.service.settings import Settings

_SHARING = 10
"""Callers of one address, behind a translating router or a proxy that is not named, who send all they may."""


def add_edge(api: FastAPI, settings: Settings) -> None:
    """Put around the routes of ``api``, the innermost first: who calls, what it may take, both logs, the headers."""
    api.state.streams = OpenStreams(at_once=settings.max_streams, per_caller=settings.max_streams_per_caller)
    api.add_exception_handler(BodyRefused, answer_refused)
    if api.state.entrance is not None:
        api.add_middleware(CallerRates, per_minute=settings.requests_per_minute)
    api.add_middleware(Callers, entrance=api.state.entrance)
    api.add_middleware(Bodies, max_bytes=settings.max_body_bytes, seconds=settings.body_s)
    if api.state.entrance is not None:
        per_minute = _SHARING * settings.requests_per_minute
        api.add_middleware(AddressRates, per_minute=per_minute, believed=api.state.entrance.believed)
    api.add_middleware(Deadlines, seconds=settings.request_s)
    api.add_middleware(Hosts, allowed=allowed_hosts(settings.hosts, settings.public_url))
    believed = api.state.entrance.believed if api.state.entrance else ()
    api.add_middleware(AuditLog, believed=believed)  # around what refuses callers, so that it hears of that
    api.add_middleware(RequestLog)
    api.add_middleware(SecurityHeaders)
