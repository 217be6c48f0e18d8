"""Callers and their tokens, the audit log, what needs attention, trainers and workers, as they travel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from autotuner.core.announcement import Trouble
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import extended
from autotuner.core.run import KnownWorker
from autotuner.core.trial_spec import Trainer
from autotuner.export.registry import target_of
from autotuner.search.space.trainers import searched_by
from autotuner.search.upkeep.attention import place_of
from autotuner.service.build import App


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleView(Trouble):
    """Something that went wrong and that nobody has mended yet."""

    path: str
    """Of the page where somebody goes on with it, below the service's address."""

    @classmethod
    def of(cls, trouble: Trouble) -> TroubleView:
        """The trouble with its place."""
        return extended(cls, trouble, path=place_of(trouble))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionList:
    """Everything that needs somebody, the worst kind first and the newest of each; no more than 20 of a kind."""

    items: tuple[TroubleView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """What needs somebody by now."""
        found = app.store.health.attention(now=app.clock.now())
        return cls(items=tuple(TroubleView.of(trouble) for trouble in found))


# Trainers that an operator registered: what a sweep may ask of each, and nothing of how it is started.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """A registered trainer."""

    name: str
    """What a sweep says as its `trainer`."""
    format: ExportFormat
    """What a layout is written as for it."""
    version: str
    """Release of the format's words."""
    stack: str
    """Name of the software that predictions of its sweeps are for."""
    options: tuple[str, ...]
    """Fields of a layout that a sweep of it may search."""
    fixed: dict[str, object]
    """What its own code decides, by field; every field that stands in neither list is at its default."""
    values: dict[str, tuple[object, ...]]
    """The values that it knows of some options, by field; it knows all of the others."""

    @classmethod
    def of(cls, trainer: Trainer) -> Self:
        """What a caller may know of the trainer."""
        target = target_of(trainer.format)
        return cls(
            name=trainer.name,
            format=trainer.format,
            version=target.version,
            stack=trainer.stack,
            options=searched_by(trainer, target),
            fixed=dict(trainer.fixed),
            values=dict(trainer.values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerList:
    """Registered trainers, in their operator's order."""

    items: tuple[TrainerView, ...]

    @classmethod
    def of(cls, trainers: Iterable[Trainer]) -> Self:
        """All of them."""
        return cls(items=tuple(TrainerView.of(trainer) for trainer in trainers))


# Workers as they are shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A process that runs sweeps."""

    name: str
    """What it calls itself."""
    version: str
    """Its release."""
    started_at: float
    """Epoch seconds."""
    seen_at: float
    """When it last told that it lives, epoch seconds of its own clock; it does so every ten seconds."""
    is_alive: bool
    """Whether that was within a minute."""
    sweep_id: str | None
    """The sweep that it runs; null: it waits for one."""

    @classmethod
    def of(cls, worker: KnownWorker, now: float, sweep_id: str | None) -> Self:
        """The worker as it is seen now."""
        return extended(cls, worker, is_alive=worker.is_alive(now), sweep_id=sweep_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """Workers that told of themselves within a day and were not stopped in good order, the last to do so first."""

    items: tuple[WorkerView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """All of them, with what they hold."""
        now = app.clock.now()
        running = {lease.owner: lease.run_id for lease in app.store.runs.leases(["sweep"])}
        workers = app.store.health.workers()
        return cls(items=tuple(WorkerView.of(worker, now, running.get(worker.name)) for worker in workers))
