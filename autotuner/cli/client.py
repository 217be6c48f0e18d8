"""Client: the service that a command asks, by its address or in its own process, and how long it waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, Protocol, TypeVar

import httpx

from api.schemas.trials import RankedTrial, TrialView
from autotuner.core.errors import InvalidInput, StoreUnavailable
from autotuner.remote import Remote

_POLL_S = 0.5
_RESTART_S = 60.0
"""How long a service may be away before it is given up on."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def patiently(ask: Callable[[], T]) -> T:
    """The first answer.

    Raises:
        StoreUnavailable: There was none for a minute.
    """
    give_up_at = time.monotonic() + _RESTART_S
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_POLL_S)


_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""

_PAGE_SIZE = 500

_TOKEN = "AUTOTUNER_TOKEN"
"""Variable with what a service that asks is shown; no option, since other users of a machine see those."""


class Client(Remote):
    """A service, whose calls are also there as JSON."""

    def __init__(self, http: httpx.Client, url: str | None = None) -> None:
        super().__init__(url or str(http.base_url), http=http)
        self.url = url

    def get(self, path: str, **params: Any) -> Any:
        """The body of a GET below ``/api/v1``; errors as for every call."""
        return self._send("GET", path, dict, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        """The body of a POST below ``/api/v1``."""
        return self.ask(path, body, dict)

    def ask(self, path: str, body: Any, answer: type[T]) -> T:
        """The answer to a POST below ``/api/v1``."""
        _require_finite("", body)
        return self._send("POST", path, answer, body=body)

    def put(self, path: str, body: Any) -> Any:
        """The body of a PUT below ``/api/v1``."""
        _require_finite("", body)
        return self._send("PUT", path, dict, body=body)

    def delete(self, path: str) -> Any:
        """The body of a DELETE below ``/api/v1``."""
        return self._send("DELETE", path, dict)

    def all_trials(self, sweep_id: str) -> list[TrialView]:
        """Every trial of a sweep, by number."""
        return _whole(lambda offset: self.list_trials(sweep_id, limit=_PAGE_SIZE, offset=offset))

    def whole_ranking(self, sweep_id: str) -> list[RankedTrial]:
        """Every ranked trial of a sweep, the best first."""
        return _whole(lambda offset: self.rank_sweep(sweep_id, limit=_PAGE_SIZE, offset=offset))

    def all(self, path: str) -> dict[str, Any]:
        """A whole list, as the service answers one page of it: ``items`` and their ``total``."""
        items: list[dict[str, Any]] = []
        while True:
            page = self.get(path, limit=_PAGE_SIZE, offset=len(items))
            items += page["items"]
            if len(items) >= page["total"] or not page["items"]:
                return {"items": items, "total": len(items)}


class _Page(Protocol[T_co]):
    """Some of a list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def total(self) -> int: ...


def _whole(read: Callable[[int], _Page[T]]) -> list[T]:
    """Return all of a list that is read page by page, each from an offset on."""
    items: list[T] = []
    while True:
        page = read(len(items))
        items += page.items
        if len(items) >= page.total or not page.items:
            return items


@contextmanager
def connect(
    server: str | None, *, num_workers: int = 0, runs_checks: bool = False, keep: bool = True
) -> Iterator[Client]:
    """A client of the service at ``server``, or of one in this process, on the database of the settings.

    Args:
        server: URL of a service that runs already; None starts one.
        num_workers: Workers of the service in this process; a service that runs already has its own.
        runs_checks: Whether a service in this process runs checks of clusters.
        keep: False for questions that store nothing: a service in this process then needs no database.

    Raises:
        StoreUnavailable: Nothing answers at ``server``.
        InvalidInput: What AUTOTUNER_TOKEN holds can be no token.
    """
    if server is None:
        from autotuner.cli.service import service_in_process

        with service_in_process(num_workers=num_workers, runs_checks=runs_checks, keep=keep) as http:
            yield Client(http)
    else:
        with httpx.Client(base_url=server, timeout=_TIMEOUT_S, headers=_authorization()) as http:
            _greet(http, server)
            yield Client(http, server.rstrip("/"))


def _require_finite(field: str, said: Any) -> None:
    """Raises InvalidInput with the field of a number that JSON has no word for: infinity, or none at all."""
    match said:
        case float() if not isfinite(said):
            raise InvalidInput(field, said, "must be a finite number")
        case dict():
            for name, value in said.items():
                _require_finite(f"{field}.{name}" if field else str(name), value)
        case list() | tuple():
            for value in said:
                _require_finite(field, value)


def _authorization() -> dict[str, str]:
    """The header that shows the caller's token; none where they have none."""
    token = os.environ.get(_TOKEN, "").strip()
    if not token.isascii() or not token.isprintable():
        raise InvalidInput(_TOKEN, "…", "must be a token as `autotuner token add` printed it")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _greet(http: httpx.Client, url: str) -> None:
    try:
        http.get("/api/v1/health")
    except httpx.UnsupportedProtocol as error:
        raise InvalidInput("--server", url, "must be a URL", "http://127.0.0.1:8000") from error
    except httpx.TransportError as error:
        raise StoreUnavailable(f"no service answers at {url} ({error}); start one with `autotuner serve`") from error
