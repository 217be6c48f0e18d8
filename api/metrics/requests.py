"""Metrics of requests, by route: as many lines as there are routes, whatever callers send."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Requests:
    """How many requests were answered and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answered = Counter(
            "autotuner_requests", "Requests by route and status.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "autotuner_request_seconds",
            "How long answers took, but for event streams.",
            ["route"],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self.open = Gauge("autotuner_requests_open", "Requests under way, event streams included.", registry=registry)


class RequestMetrics:
    """Counts and times every request.

    Args:
        requests: Where.
        prefix: Before the paths of the API's routes.
    """

    def __init__(self, app: ASGIApp, requests: Requests, prefix: str) -> None:
        self._app = app
        self._requests = requests
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, is_stream, started = 500, False, time.perf_counter()

        async def send_seen(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                is_stream = any(value.startswith(b"text/event-stream") for _, value in message.get("headers", ()))
            await send(message)

        with self._requests.open.track_inprogress():
            try:
                await self._app(scope, receive, send_seen)
            finally:
                self._count(scope, status, None if is_stream else time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float | None) -> None:
        method, route = scope["method"], self._route(scope)
        self._requests.answered.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if seconds is not None:
            self._requests.seconds.labels(route).observe(seconds)

    def _route(self, scope: Scope) -> str:
        """The path of the route as it is declared; one word for all that no route has."""
        route, path = scope.get("route"), str(scope["path"])
        if route is None:
            return "/static" if path.startswith("/static/") else "none"
        # A route that was included does not know below what.
        return f"{self._prefix}{route.path}" if path.startswith(f"{self._prefix}/") else str(route.path)
