"""The door in the process of a command, for questions that store nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotuner.door import Autotuner


@contextmanager
def own_door(*, knows_stored: bool) -> Iterator[Autotuner]:
    """The door, closed when the block is left.

    Args:
        knows_stored: Whether what is stored in the database of the settings counts; False touches no database.
    """
    door = _with_store() if knows_stored else Autotuner()
    try:
        yield door
    finally:
        door.close()


def _with_store() -> Autotuner:
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded
    from autotuner.store.sql import open_store

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    return Autotuner(stored_names=None, open_store=lambda: open_store(settings.database_url))
