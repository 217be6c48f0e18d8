"""The job that an engine (Slurm, Kubernetes, Ray) was given to run a trial, as a trial remembers it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["EngineJob", "EngineJobPhase"]


class EngineJobPhase(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"  # accepted; it has no accelerators yet, or its nodes are still being made ready
    RUNNING = "running"
    ENDED = "ended"  # by itself, well or not, or because it was cancelled
    LOST = "lost"  # the engine took its nodes away, or could never start it: that says nothing of the trial

    @property
    def is_over(self) -> bool:
        """No process of it is left."""
        return self in (EngineJobPhase.ENDED, EngineJobPhase.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """A job of an engine that runs a trial, or one run of it, as it was last seen.

    Attributes:
        engine: Name of the engine, as its operator registered it.
        name: What this side calls it; no other trial, run or attempt has a job of that name.
        handle: What the engine calls it: the number of a Slurm job, the name of a Kubernetes object.
        detail: Why it waits, or how it ended, in the engine's words.
        submitted_at: Epoch seconds.
        started_at: When it was first seen to have its accelerators; None before.
        ended_at: When it was first seen to be over; None before.
    """

    engine: str
    name: str
    handle: str
    submitted_at: float
    phase: EngineJobPhase = EngineJobPhase.QUEUED
    detail: str = ""
    started_at: float | None = None
    ended_at: float | None = None

    def running_s(self, now: float) -> float:
        """How long it has had its accelerators: waiting in a queue is no trial time."""
        if self.started_at is None:
            return 0.0
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def queued_s(self, now: float) -> float:
        """How long it waited for them."""
        ends = (moment for moment in (self.started_at, self.ended_at) if moment is not None)
        return max(0.0, min(ends, default=now) - self.submitted_at)

    def over(self, now: float) -> EngineJob:
        """The job as it stands when its trial has ended, where nobody saw it end."""
        return self if self.phase.is_over else replace(self, phase=EngineJobPhase.ENDED, ended_at=now)
