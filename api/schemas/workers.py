"""Workers as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.run import KnownWorker
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A process that runs sweeps.

    Attributes:
        name: What it calls itself.
        version: Its release.
        started_at: Epoch seconds.
        seen_at: When it last told that it lives, epoch seconds of its own clock; it does so every ten seconds.
        is_alive: Whether that was within a minute.
        sweep_id: The sweep that it runs; null: it waits for one.
    """

    name: str
    version: str
    started_at: float
    seen_at: float
    is_alive: bool
    sweep_id: str | None

    @classmethod
    def of(cls, worker: KnownWorker, now: float, sweep_id: str | None) -> Self:
        """The worker as it is seen now."""
        return cls(
            name=worker.name,
            version=worker.version,
            started_at=worker.started_at,
            seen_at=worker.seen_at,
            is_alive=worker.is_alive(now),
            sweep_id=sweep_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """Workers that told of themselves within a day and were not stopped in good order, the last to do so first."""

    items: tuple[WorkerView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """All of them, with what they hold."""
        now = app.clock.now()
        running = {lease.owner: lease.run_id for lease in app.store.runs.leases(["sweep"])}
        workers = app.store.workers.list()
        return cls(items=tuple(WorkerView.of(worker, now, running.get(worker.name)) for worker in workers))
