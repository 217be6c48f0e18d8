"""Connections: a command asks the door in this process, a service in this process, or one that runs already."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from autotuner.cli.console import show
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from types import FrameType

    import httpx

    from autotuner.door import Autotuner
    from autotuner.remote import Remote
    from autotuner.report.report import Report
    from autotuner.search.planning.plan import PlanRun
    from autotuner.search.planning.request import PlanRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_TIMEOUT_S = 60.0
"""A sweep on ``local`` makes the service measure its cores before it answers."""

_POLL_S = 0.5
_RESTART_S = 60.0
"""Seconds for which a service may be away before the command gives up."""

_PAGE_SIZE = 500

_TOKEN = "AUTOTUNER_TOKEN"
"""Variable with what a service that asks is shown; no option, since other users of a machine see those."""


# ---------------------------------------------------------------- questions
def ask(request: Any, server: str | None, own: Callable[[Autotuner], T], remote: Callable[[Remote], T]) -> T:
    """Return the answer to a request.

    Args:
        request: What is asked: what it names decides whether the database of the settings is opened.
        server: URL of a service; None: this process answers.
        own: Asks the door.
        remote: Asks the service.
    """
    if server is None:
        with door_for(request) as door:
            return own(door)
    with connect(server) as client:
        return remote(client)


def may_name_stored(request: Any) -> bool:
    """Return whether what is stored may describe a cluster of the request, so that it needs the database."""
    from autotuner.core.cluster import Cluster
    from autotuner.core.named import names_in

    return any(cls is Cluster and is_stored_cluster(name) for cls, name in names_in(request))


def is_stored_cluster(name: str) -> bool:
    """Return whether what is stored may describe the cluster of that name."""
    from autotuner.catalog.hardware import load_cluster

    if name == "local" or name.startswith("profile:"):
        return True
    try:
        load_cluster(name)
    except (InvalidInput, NotFound):
        return True
    return False


@contextmanager
def door_for(request: Any) -> Iterator[Autotuner]:
    """The door, closed when the block is left; of a request that nothing stored may describe it touches no database."""
    from autotuner.door import Autotuner

    door = _with_store() if may_name_stored(request) else Autotuner()
    try:
        yield door
    finally:
        door.close()


def _with_store() -> Autotuner:
    from autotuner.door import Autotuner
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded
    from autotuner.store.sql import open_store

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    return Autotuner(stored_names=None, open_store=lambda: open_store(settings.database_url))


# ---------------------------------------------------------------- services
def tell(
    server: str | None,
    read: Callable[[Remote], T],
    report_of: Callable[[T], Report],
    *,
    as_json: bool,
    keep: bool = True,
) -> None:
    """Print what a service answers; ``keep`` is as of ``connect``."""
    with connect(server, keep=keep) as service:
        show(read(service), report_of, as_json=as_json)


@contextmanager
def connect(
    server: str | None,
    *,
    num_workers: int = 0,
    runs_checks: bool = False,
    keep: bool = True,
    token: str | None = None,
) -> Iterator[Remote]:
    """The service at ``server``, or one in this process on the database of the settings, whose ``url`` is None.

    Args:
        server: URL of a service that runs already; None starts one.
        num_workers: Workers of the service in this process; a service that runs already has its own.
        runs_checks: Whether a service in this process runs checks of clusters.
        keep: False for questions that store nothing: a service in this process then needs no database.
        token: Shown to the service; None takes the variable AUTOTUNER_TOKEN.

    Raises:
        StoreUnavailable: Nothing answers at ``server``.
        InvalidInput: What AUTOTUNER_TOKEN holds can be no token.
    """
    from autotuner.remote import Remote

    if server is None:
        from autotuner.cli.service import service_in_process

        with service_in_process(num_workers=num_workers, runs_checks=runs_checks, keep=keep) as http:
            service = Remote(str(http.base_url), http=http)
            service.url = None
            yield service
    else:
        import httpx

        with httpx.Client(base_url=server, timeout=_TIMEOUT_S, headers=_authorization(token)) as http:
            _greet(http, server)
            yield Remote(server, http=http)


def _authorization(given: str | None) -> dict[str, str]:
    """The header that shows the caller's token; none where they have none."""
    token = (os.environ.get(_TOKEN, "") if given is None else given).strip()
    if not token.isascii() or not token.isprintable():
        raise InvalidInput(_TOKEN, "…", "must be a token as `autotuner token add` printed it")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _greet(http: httpx.Client, url: str) -> None:
    import httpx

    try:
        http.get("/api/v1/health")
    except httpx.UnsupportedProtocol as error:
        raise InvalidInput("--server", url, "must be a URL", "http://127.0.0.1:8000") from error
    except httpx.TransportError as error:
        raise StoreUnavailable(f"no service answers at {url} ({error}); start one with `autotuner serve`") from error


def patiently(ask: Callable[[], T]) -> T:
    """Return the first answer.

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


_WAIT_S = 0.5


def planned(
    remote: Remote, request: PlanRequest, hear: Callable[[int, int], None] = lambda done, known: None
) -> PlanRun:
    """Return the plan of a service, once it is computed.

    Raises:
        AutotunerError: Somebody cancelled it.
    """
    from autotuner.search.planning.plan import PlanRun

    found = remote.create_plan(request)
    while not found.state.is_finished:
        hear(found.progress.num_done, found.progress.num_known)
        found = remote.read_run(PlanRun, found.id, wait_s=_WAIT_S)
    if found.result is None:
        raise AutotunerError(f"the plan {found.id} was cancelled; ask for it again")
    return found


class _Page(Protocol[T_co]):
    """A part of a list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def total(self) -> int: ...


def whole(read: Callable[..., _Page[T]], key: str) -> list[T]:
    """Return all of a list that a service answers page by page, of what has the key: of a sweep its trials."""
    items: list[T] = []
    while True:
        page = read(key, limit=_PAGE_SIZE, offset=len(items))
        items += page.items
        if len(items) >= page.total or not page.items:
            return items


# ---------------------------------------------------------------- Ctrl-C and SIGTERM
@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGINT and SIGTERM while the block runs."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C while the block runs, so that it is left in good order either way."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
