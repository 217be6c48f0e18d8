"""Metrics for Prometheus: the requests, the event loop and the store of one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import Scope

from autotuner.core.errors import StoreUnavailable
from autotuner.core.run import RunState
from autotuner.core.trial import TrialState
from autotuner.runs.clock import Clock
from autotuner.service.build import App

if TYPE_CHECKING:
    from autotuner.store.health import Gauges
    from autotuner.store.sql import Store

# The delay of the event loop, for which every request waits.

_EVERY_S = 0.25

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """A Prometheus histogram of the delay of the event loop: the time by which a due callback starts too late."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag_s = Histogram(
            "autotuner_event_loop_lag_seconds",
            "Seconds by which callbacks of the event loop run late.",
            registry=registry,
            buckets=_BUCKETS_S,
        )

    async def watch(self) -> None:
        """Measure the delay of the event loop four times a second until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._lag_s.observe(max(0.0, loop.time() - due))


# Metrics of requests, by route: as many lines as there are routes, whatever callers send.

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_REQUESTS_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Requests:
    """The metrics of answered requests: their number and their duration.

    Args:
        registry: Registry that the metrics are added to.
        prefix: Path before the paths of the REST routes.
    """

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        self._prefix = prefix
        self.answered = Counter(
            "autotuner_requests",
            "Number of requests, by route and status.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "autotuner_request_seconds",
            "Seconds until a request was answered, without event streams.",
            ["route"],
            registry=registry,
            buckets=_REQUESTS_BUCKETS_S,
        )
        self.open = Gauge(
            "autotuner_requests_open",
            "Number of requests that are being answered, with event streams.",
            registry=registry,
        )

    def count(self, scope: Scope, status: int, seconds: float | None) -> None:
        """Count one answered request and its duration.

        Args:
            scope: Scope of the request.
            status: HTTP status of the answer.
            seconds: Duration of the request; None for a stream, which is not timed.
        """
        method, route = scope["method"], self._route(scope)
        self.answered.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if seconds is not None:
            self.seconds.labels(route).observe(seconds)

    def _route(self, scope: Scope) -> str:
        """Return the declared path of the request's route; requests without a route share one word."""
        route, path = scope.get("route"), str(scope["path"])
        if route is None:
            return "/static" if path.startswith("/static/") else "none"
        # An included route does not know its router's prefix.
        return f"{self._prefix}{route.path}" if path.startswith(f"{self._prefix}/") else str(route.path)


# Metrics of what is stored, read when they are asked for.

State = TypeVar("State", bound=StrEnum)


class StoredMetrics(Collector):
    """Gauges of sweeps, trials, workers and deliveries, whose values are read from the database at each collection.

    If the database does not answer, the only gauge is ``autotuner_database_up`` with the value 0.
    """

    def __init__(self, open_store: Callable[[], Store], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return no metrics, so that the registry does not query the database when the service is created."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the gauges with their present values, which are read from the database now."""
        now = self._clock.now()
        try:
            store = self._open_store()
            gauges, workers = store.health.gauges(now=now), store.health.workers()
        except StoreUnavailable:
            yield _gauge("database_up", "1 if the database answers, else 0.", 0)
            return
        yield _gauge("database_up", "1 if the database answers, else 0.", 1)
        num_workers = sum(worker.is_alive(now) for worker in workers)
        yield _gauge("workers_alive", "Number of workers that sent a heartbeat within the last minute.", num_workers)
        yield from _families(gauges, now)


def _families(gauges: Gauges, now: float) -> Iterable[GaugeMetricFamily]:
    yield _by_state("sweeps", "Sweeps by state.", RunState, gauges.num_sweeps)
    yield _by_state(
        "open_trials", "Number of trials of unfinished sweeps, by state.", TrialState, gauges.num_open_trials
    )
    yield _by_state(
        "trials_ended_last_hour",
        "Number of trials that ended within the last hour, by state.",
        TrialState,
        gauges.num_ended_trials,
    )
    yield _gauge(
        "queue_age_seconds", "Seconds that the oldest queued sweep has waited.", _age(gauges.oldest_queued_at, now)
    )
    yield _gauge("deliveries_pending", "Number of pending deliveries to webhooks.", gauges.num_pending_deliveries)
    yield _gauge(
        "delivery_age_seconds",
        "Seconds that the oldest pending delivery has waited.",
        _age(gauges.oldest_pending_at, now),
    )


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"autotuner_{name}", what, value=value)


def _by_state(name: str, what: str, states: type[State], counts: Mapping[State, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"autotuner_{name}", what, labels=["state"])
    for state in states:  # also states without sweeps, because a line that begins late looks like a jump
        family.add_metric([state.value], counts.get(state, 0))
    return family


# Metrics: all that one service tells Prometheus.

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The metrics of one service for Prometheus. Two services in one process have separate metrics."""

    def __init__(self, app: App, prefix: str) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests(self.registry, prefix)
        self._lag = LoopLag(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(StoredMetrics(lambda: app.store, app.clock))

    def text(self) -> bytes:
        """Return all metrics of the service in Prometheus' text format, for the route that Prometheus reads."""
        return generate_latest(self.registry)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Measure the delay of the event loop while the context lasts."""
        watch = asyncio.create_task(self._lag.watch())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
