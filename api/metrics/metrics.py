"""Metrics: all that one service tells Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from api.metrics.loop_lag import LoopLag
from api.metrics.requests import Requests
from api.metrics.stored import StoredMetrics
from autotuner.service.build import App

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """All that one service tells Prometheus; services of one process tell each their own."""

    def __init__(self, app: App) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests(self.registry)
        self._lag = LoopLag(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(StoredMetrics(app.open, app.clock))

    def text(self) -> bytes:
        """Everything, in Prometheus' words."""
        return generate_latest(self.registry)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the event loop meanwhile."""
        watch = asyncio.create_task(self._lag.watch())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
