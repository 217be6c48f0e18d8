"""What stands around the routes, in order."""

from __future__ import annotations

from fastapi import FastAPI

from api.edge.callers import Callers
from api.edge.request_log import RequestLog

__all__ = ["add_edge"]


def add_edge(api: FastAPI) -> None:
    """Put around the routes of ``api``, the innermost first: who calls, the log."""
    api.add_middleware(Callers)
    api.add_middleware(RequestLog)
