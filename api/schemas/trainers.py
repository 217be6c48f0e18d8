"""Trainers that an operator registered: what a sweep may ask of each, and nothing of how it is started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from autotuner.core.trial_spec import ExportFormat, Trainer
from autotuner.export.registry import target_of
from autotuner.search.expressible import searched_by


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """A registered trainer.

    Attributes:
        name: What a sweep says as its `trainer`.
        format: What a layout is written as for it.
        version: Release of the format's words.
        stack: Name of the software that predictions of its sweeps are for.
        options: Fields of a layout that a sweep of it may search.
        fixed: What its own code decides, by field; every field that stands in neither list is at its default.
        values: The values that it knows of some options, by field; it knows all of the others.
    """

    name: str
    format: ExportFormat
    version: str
    stack: str
    options: tuple[str, ...]
    fixed: dict[str, object]
    values: dict[str, tuple[object, ...]]

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
