"""A worker that runs sweeps, as the service puts it together."""

from __future__ import annotations

import threading

from autotuner.launch.contract import Launcher
from autotuner.runs.clock import Clock
from autotuner.runs.sweep_trials import sweep_kind
from autotuner.runs.worker import Worker
from autotuner.store.sql import Store


def sweep_worker(
    store: Store,
    launcher: Launcher,
    clock: Clock,
    *,
    owner: str,
    lease_s: float,
    shutdown: threading.Event | None = None,
) -> Worker:
    """Return a worker of that name."""
    kinds, shutdown = {"sweep": sweep_kind(store, launcher)}, shutdown or threading.Event()
    return Worker(store.runs, kinds, clock, owner=owner, lease_s=lease_s, shutdown=shutdown)
