"""Asks a question of the door in this process, or of a service that runs already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from autotuner.door import Autotuner
    from autotuner.remote import Remote

T = TypeVar("T")


def ask(request: Any, server: str | None, own: Callable[[Autotuner], T], remote: Callable[[Remote], T]) -> T:
    """Return the answer to a request.

    Args:
        request: What is asked: what it names decides whether the database of the settings is opened.
        server: URL of a service; None: this process answers.
        own: Asks the door.
        remote: Asks the service.
    """
    if server is None:
        with _door(knows_stored=_may_name_stored(request)) as door:
            return own(door)
    from autotuner.cli.client import connect

    with connect(server) as client:
        return remote(client)


def _may_name_stored(request: Any) -> bool:
    """Return whether what is stored may describe a cluster of the request."""
    from autotuner.cli.inputs import may_be_stored
    from autotuner.core.cluster import Cluster
    from autotuner.core.named import names_in

    return any(cls is Cluster and may_be_stored(name) for cls, name in names_in(request))


@contextmanager
def _door(*, knows_stored: bool) -> Iterator[Autotuner]:
    """The door, closed when the block is left; without ``knows_stored`` it touches no database."""
    from autotuner.door import Autotuner

    door = _with_store() if knows_stored else Autotuner()
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
