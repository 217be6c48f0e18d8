"""The REST service as the CLI sees it: one that runs already, or one started for the length of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from uvicorn.importer import import_from_string

from autotuner.bootstrap import App, build
from autotuner.cli.interrupt import terminable
from autotuner.errors import AutotunerError, StoreUnavailable
from autotuner.settings import Settings
from autotuner.store.schema import migrate
from autotuner.store.sql import memory_store

__all__ = ["GRACE_S", "Client", "ServiceError", "connect", "create_api", "migrate_if_embedded"]

_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""


_PAGE_SIZE = 500

GRACE_S = 3
"""What open connections get when a service stops; a dashboard's event stream would stay for ever."""


class ServiceError(AutotunerError):
    """The service answered with a problem.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457).
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP {status}"))


class Client:
    """Calls of the REST API that return its JSON."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    @property
    def url(self) -> str:
        """Where the service and its dashboard are."""
        return str(self._http.base_url).rstrip("/")

    def get(self, path: str, **params: Any) -> Any:
        """The body of a GET below ``/api/v1``.

        Raises:
            ServiceError: The service answered with a problem.
            StoreUnavailable: It did not answer.
        """
        return self._body("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        """The body of a POST below ``/api/v1``; errors as for ``get``."""
        return self._body("POST", path, json=body)

    def pages(self, path: str) -> list[dict[str, Any]]:
        """The items of all pages of a list."""
        items: list[dict[str, Any]] = []
        while True:
            page = self.get(path, limit=_PAGE_SIZE, offset=len(items))
            items += page["items"]
            if len(items) >= page["total"] or not page["items"]:
                return items

    def _body(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, f"/api/v1{path}", **request)
        except httpx.TransportError as error:
            raise StoreUnavailable(f"the service at {self.url} does not answer any more: {error}") from error
        if response.is_error:
            is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
            raise ServiceError(response.status_code, response.json() if is_problem else {})
        return response.json()


@contextmanager
def connect(server: str | None, *, num_workers: int = 0, keep: bool = True) -> Iterator[Client]:
    """A client of the service at ``server``, or of one in this process, on the database of the settings.

    Args:
        server: URL of a service that runs already; None starts one.
        num_workers: Workers of the service in this process; a service that runs already has its own.
        keep: False for questions that store nothing: a service in this process then needs no database.

    Raises:
        StoreUnavailable: Nothing answers at ``server``.
    """
    if server is not None:
        with _client(server) as http:
            yield Client(http)
        return
    settings = Settings(num_workers=num_workers, log_level="warning")
    if keep:
        migrate_if_embedded(settings)
    application = build(settings, store=None if keep else memory_store())
    with terminable(), _service(application) as url, _client(url) as http:
        yield Client(http)


def migrate_if_embedded(settings: Settings) -> None:
    """Bring a SQLite file to the newest schema; a server's database is migrated on purpose (``autotuner migrate``)."""
    if settings.database_url.startswith("sqlite"):
        migrate(settings.database_url)


def create_api(application: App) -> Any:
    """The REST service around the application; by name, since the CLI and the API do not import each other."""
    return import_from_string("api.main:create_app")(application)


@contextmanager
def _client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as http:
        try:
            http.get("/api/v1/health")
        except httpx.TransportError as error:
            raise StoreUnavailable(
                f"no service answers at {url} ({error}); start one with `autotuner serve`"
            ) from error
        yield http


@contextmanager
def _service(application: App) -> Iterator[str]:
    host = application.settings.host
    config = uvicorn.Config(
        create_api(application),
        host=host,
        port=0,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="autotuner-service")
    thread.start()
    try:
        yield f"http://{host}:{_port(server, thread)}"
    finally:
        application.request_stop()  # first: the server waits for open event streams, and they for the sweep's end
        server.should_exit = True
        thread.join()
        application.close()


def _port(server: uvicorn.Server, thread: threading.Thread) -> int:
    while thread.is_alive():
        if server.started:
            port: int = server.servers[0].sockets[0].getsockname()[1]
            return port
        time.sleep(0.02)
    raise StoreUnavailable("the service did not start; `autotuner serve` shows why")
