"""Connections: a command uses the door in its own process, a service in its own process, or a running service."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from autotuner.core.errors import AutotunerError, InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    import httpx

    from autotuner.door import Autotuner
    from autotuner.remote import Remote
    from autotuner.search.planning.plan import PlanRun
    from autotuner.search.planning.request import PlanRequest

_LOG = logging.getLogger("autotuner")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_TIMEOUT_S = 60.0
"""Timeout of a request; a sweep on ``local`` makes the service measure its cores before it answers."""

_POLL_S = 0.5
_RESTART_S = 60.0
"""Seconds for which a service may be unreachable before the command gives up."""

_PAGE_SIZE = 500

_TOKEN = "AUTOTUNER_TOKEN"
"""Environment variable with the token for a service. It is not an option, because other users of a machine can see the
options of processes."""


# ---------------------------------------------------------------- questions
def ask(
    request: Any,
    server: str | None,
    own: Callable[[Autotuner], T],
    remote: Callable[[Remote], T],
    *,
    token: str | None = None,
) -> T:
    """Get an answer from a running service, or compute it in this process.

    Args:
        request: The request. If it may name a stored cluster, this process opens the database of the settings.
        server: URL of a running service; None: this process answers.
        own: Function that gets the answer in this process, from the product's Python API (``Autotuner``).
        remote: Function that gets the answer from the running service.
        token: See ``connect``.
    """
    if server is None:
        with door_for(request) as door:
            return own(door)
    with connect(server, token=token) as client:
        return remote(client)


def may_name_stored(request: Any) -> bool:
    """Return True if the request names a cluster that may be stored. An answer then needs the database."""
    from autotuner.core.cluster import Cluster
    from autotuner.core.named import names_in

    return any(cls is Cluster and is_stored_cluster(name) for cls, name in names_in(request))


def is_stored_cluster(name: str) -> bool:
    """Return True if a cluster of this name may be stored in the database, because the catalog does not describe it.

    The result is also True for ``local`` and for names that begin with ``profile:``, because the database holds the
    measurements of this machine.
    """
    from autotuner.catalog.hardware import load_cluster

    if name == "local" or name.startswith("profile:"):
        return True
    try:
        load_cluster(name)
    except (InvalidInput, NotFound):
        return True
    return False


@contextmanager
def answering(server: str | None, *, opens_store: bool) -> Iterator[Autotuner | Remote]:
    """Yield an object that answers questions: the product in this process, or a client of a running service.

    Both objects have the same methods.

    Args:
        server: URL of a running service; None: this process answers.
        opens_store: True if a question may name a stored cluster. This process then opens the database.
    """
    if server is not None:
        with connect(server) as client:
            yield client
    else:
        with _door(opens_store=opens_store) as door:
            yield door


def door_for(request: Any) -> AbstractContextManager[Autotuner]:
    """Open the product's Python API (``Autotuner``) for a block of code, and close it afterwards.

    It opens no database if the request cannot name a stored cluster.
    """
    return _door(opens_store=may_name_stored(request))


@contextmanager
def _door(*, opens_store: bool) -> Iterator[Autotuner]:
    from autotuner.door import Autotuner

    door = _with_store() if opens_store else Autotuner()
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
    _LOG.info("open the database %s", settings.database_address)
    migrate_if_embedded(settings.database_url)
    return Autotuner(stored_names=None, open_store=lambda: open_store(settings.database_url))


# ---------------------------------------------------------------- services
@contextmanager
def connect(
    server: str | None,
    *,
    num_workers: int = 0,
    runs_checks: bool = False,
    keep: bool = True,
    token: str | None = None,
) -> Iterator[Remote]:
    """Connect to the service at ``server``, or start a service in this process with the database of the settings.

    The ``url`` of a service in this process is None.

    Args:
        server: URL of a running service; None starts a service in this process.
        num_workers: Number of workers of the service in this process. A running service has its own.
        runs_checks: True if the service in this process may run checks of clusters.
        keep: False for a question that stores nothing: a service in this process then needs no database.
        token: The access token for the running service; None: the value of the variable AUTOTUNER_TOKEN.

    Raises:
        StoreUnavailable: Nothing answers at ``server``.
        InvalidInput: The value of AUTOTUNER_TOKEN cannot be a token.
    """
    from autotuner.remote import Remote

    if server is None:
        from autotuner.in_process import service_in_process

        with service_in_process(num_workers=num_workers, runs_checks=runs_checks, keep=keep) as http:
            service = Remote(str(http.base_url), http=http)
            service.url = None
            yield service
    else:
        import httpx

        _LOG.info("ask the service at %s", server)
        with httpx.Client(base_url=server, timeout=_TIMEOUT_S, headers=_authorization(token)) as http:
            _greet(http, server)
            yield Remote(server, http=http)


def _authorization(given: str | None) -> dict[str, str]:
    """Return the header with the caller's token; empty without a token."""
    token = (os.environ.get(_TOKEN, "") if given is None else given).strip()
    if not token.isascii() or not token.isprintable():
        raise InvalidInput(_TOKEN, "…", "must be a token as `autotuner token add` printed it")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _greet(http: httpx.Client, url: str) -> None:
    import httpx

    try:
        http.get("/api/v1/health")
    except httpx.UnsupportedProtocol as error:
        raise InvalidInput(
            "--server", url, "must be the URL of a service, for example http://127.0.0.1:8000"
        ) from error
    except httpx.TransportError as error:
        raise StoreUnavailable(f"no service answers at {url} ({error}); start one with `autotuner serve`") from error


def patiently(ask: Callable[[], T]) -> T:
    """Call ``ask`` again until the service answers, for a minute at most, because the service may be restarting.

    Raises:
        StoreUnavailable: The service did not answer within a minute.
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
    """Request a plan (a comparison of clusters) from a service, and return it when it is computed.

    Args:
        remote: The service.
        request: The request for the plan.
        hear: Function that is called while the plan is computed, with the number of finished pieces of work and the
            number of all pieces known so far.

    Raises:
        AutotunerError: Somebody cancelled the plan.
    """
    from autotuner.search.planning.plan import PlanRun

    found = remote.create_plan(request)
    while not found.state.is_finished:
        hear(found.progress.num_done, found.progress.num_known)
        found = remote.read_run(PlanRun, found.id, wait_s=_WAIT_S)
    if found.result is None:
        raise AutotunerError(f"the plan {found.id} was cancelled; run the command again")
    return found


class _Page(Protocol[T_co]):
    """One page of a list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def total(self) -> int: ...


def whole(read: Callable[..., _Page[T]], key: str) -> list[T]:
    """Return all items of a list that the service returns in pages.

    Args:
        read: Reads one page, such as ``Remote.list_trials``.
        key: The id of the object that owns the list, such as the id of the sweep for a list of trials.
    """
    items: list[T] = []
    while True:
        page = read(key, limit=_PAGE_SIZE, offset=len(items))
        items += page.items
        if len(items) >= page.total or not page.items:
            return items
