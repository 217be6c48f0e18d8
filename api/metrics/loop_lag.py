"""How late the event loop is: what everybody waits for while something keeps it."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Histogram

_EVERY_S = 0.25

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Asks to be called at a time, again and again, and keeps by how much later it was."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag_s = Histogram(
            "autotuner_event_loop_lag_seconds",
            "By how much later the event loop does what is due.",
            registry=registry,
            buckets=_BUCKETS_S,
        )

    async def watch(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._lag_s.observe(max(0.0, loop.time() - due))
