"""Presence: a worker tells that it lives, for as long as it runs."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from autotuner.core.errors import StoreUnavailable
from autotuner.core.run import KnownWorker
from autotuner.host.machine import host_hash
from autotuner.runs.clock import Clock

if TYPE_CHECKING:
    from autotuner.store.health import Health

_log = structlog.get_logger(__name__)


def new_owner() -> str:
    """A name that no other process or worker has; whoever reads it learns no machine's name."""
    return f"{host_hash()[:6]}-{os.getpid()}-{uuid4().hex[:6]}"


class Presence:
    """What people see of one worker."""

    def __init__(self, store: Health, clock: Clock, *, name: str) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._version = version("parallelism-autotuner")
        self._started_at = clock.now()

    def tell(self) -> None:
        """Say once more that the worker lives."""
        self._store.tell(
            KnownWorker(name=self._name, version=self._version, started_at=self._started_at, seen_at=self._clock.now())
        )

    def end(self) -> None:
        """Say that it has stopped; a store that is away forgets it by itself in time."""
        try:
            self._store.forget(self._name)
        except StoreUnavailable as error:
            _log.warning("presence.store_unavailable", error=str(error))
