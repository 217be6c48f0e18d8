"""Runs the service inside a command's process, or as a server of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from typing import cast

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from autotuner.api.main import create_app
from autotuner.core.signals import terminable
from autotuner.door import NoNames
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate_if_embedded

_LOG = logging.getLogger("autotuner")

_URL = "http://localhost"
"""Placeholder for the address in requests; no server listens there."""

_A_DAY_S = 86_400.0


@contextmanager
def service_in_process(*, num_workers: int, keep: bool, runs_checks: bool = False) -> Iterator[httpx.Client]:
    """Start a service in this process, and yield an HTTP client for it.

    When the block ends, the service stops, and its workers put unfinished work back into the queue.

    Args:
        num_workers: Number of threads that run sweeps while the service runs.
        keep: False for a service that stores nothing and needs no database.
        runs_checks: True if one more thread runs checks of clusters.
    """
    settings = Settings(
        num_workers=num_workers,
        log_level="error" if _LOG.level >= logging.ERROR else "warning",
        starts_retunes=False,  # this process ends soon
        login="none",  # a user with access to the database needs no token
        compute_processes=0,  # no other caller waits
        request_s=_A_DAY_S,  # the user ends a slow command
    )
    _LOG.info("start a service in this process, with %s", settings.database_address if keep else "no database")
    application = _application(settings, keep=keep)
    with terminable(), start_blocking_portal() as portal:
        application.background.start()
        if runs_checks:
            application.background.start_checks()
        try:
            with httpx.Client(transport=_InProcess(create_app(application), portal), base_url=_URL) as http:
                yield http
        finally:
            application.close()


def _application(settings: Settings, *, keep: bool) -> App:
    if keep:
        migrate_if_embedded(settings.database_url)
        return build(settings)
    return build(settings, names=NoNames())


class _InProcess(httpx.BaseTransport):
    """Transport that passes HTTP requests to an ASGI application on the event loop of another thread."""

    def __init__(self, api: FastAPI, portal: BlockingPortal) -> None:
        self._asgi = httpx.ASGITransport(api, raise_app_exceptions=False)
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._asgi.handle_async_request(request)
        body = b"".join([part async for part in cast("AsyncIterable[bytes]", answer.stream)])
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)
