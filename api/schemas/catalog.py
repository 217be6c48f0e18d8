"""The service's own state, and what stored trials taught of hardware and software."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from autotuner.core.documents import extended
from autotuner.core.job import Calibration
from autotuner.costmodel.uncertainty import Z80
from autotuner.search.sampler.calibration import Lesson

# The service's own state.


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The database answers, is migrated and takes writes."""

    schema_revision: str
    """The migration that the database is at."""
    num_workers: int
    """Workers that told of themselves within a minute; without one, sweeps wait."""
    status: Literal["ready"] = "ready"


# What stored trials taught of hardware and software, for those who want to know why predictions changed.


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntFactor:
    """How many times as long something takes as is predicted for a typical platform."""

    factor: float
    """Above 1: longer."""
    relative_error: float
    """Half-width of the factor's 80 % interval, as a share of it."""
    differs: bool
    """Whether that interval leaves out 1, what is predicted."""

    @classmethod
    def of(cls, factor: float, deviation: float) -> Self:
        """The factor whose logarithm has that standard deviation."""
        half_width = Z80 * deviation
        return cls(factor=factor, relative_error=math.expm1(half_width), differs=abs(math.log(factor)) > half_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """What the stored trials on one platform taught."""

    accelerator: str
    """Name of the accelerator that they ran on."""
    intra_node_link: str
    """Name of the link within its nodes."""
    inter_node_link: str
    """Name of the link between them."""
    stack: str
    """Name of the software that their predictions are for."""
    trainer: str | None
    """Name of the registered trainer that ran them; null: our own decoder."""
    num_trials: int
    """Trials that were measured or ran out of memory."""
    num_sweeps: int
    """Sweeps that they belong to."""
    last_finished_at: float
    """When the newest of them ended, epoch seconds."""
    whole_step: LearntFactor | None
    """What their whole steps take; null where every trial ran out of memory."""
    parts: dict[str, LearntFactor]
    """What parts of a step take beside that, by name; one that the trials say nothing of is about 1 and wide."""
    median_error: float | None
    """Median of |predicted / measured - 1| as predicted before anything was learnt; null where none was timed."""
    left_out_error: float | None
    """The same after learning, where each job is predicted from all other jobs alone; null with fewer than two jobs."""

    @classmethod
    def of(cls, lesson: Lesson) -> Self:
        """The lesson with its intervals."""
        platform, known = lesson.platform, lesson.calibration
        return extended(
            cls,
            platform,
            lesson,
            whole_step=None if known is None else LearntFactor.of(known.factor, known.deviation),
            parts={} if known is None else _parts(known),
        )


def _parts(known: Calibration) -> dict[str, LearntFactor]:
    return {one.part: LearntFactor.of(one.factor, one.deviation) for one in known.parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationList:
    """What was learnt, by accelerator, and of each platform with the newest trial first."""

    items: tuple[CalibrationView, ...]

    @classmethod
    def of(cls, lessons: Iterable[Lesson]) -> Self:
        """All of them."""
        return cls(items=tuple(CalibrationView.of(lesson) for lesson in lessons))
