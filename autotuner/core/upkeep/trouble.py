"""Trouble: something that went wrong and that nobody has mended yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Trouble", "TroubleKind"]


class TroubleKind(StrEnum):
    """What went wrong, the worst first."""

    NO_WORKER = "no_worker"  # sweeps wait, and nobody lives who would run them
    REGRESSION = "regression"  # of a retune, as is the next
    RETUNE_COULD_NOT_RUN = "retune_could_not_run"
    GATE_FAILED = "gate_failed"
    GATE_COULD_NOT_RUN = "gate_could_not_run"
    GATE_UNDECIDED = "gate_undecided"
    SWEEP_FAILED = "sweep_failed"
    CHECK_FAILED = "check_failed"  # of a cluster
    DELIVERIES_DEAD = "deliveries_dead"  # to a webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that needs somebody.

    Attributes:
        subject: Id of the sweep or gate, name of the retune, cluster or webhook; empty where none waits alone.
        name: What people call it; empty where nothing has one.
        detail: What happened, with its numbers, as a sentence without a full stop.
        at: When, epoch seconds.
        count: How many of that kind this stands for.
    """

    kind: TroubleKind
    subject: str
    name: str
    detail: str
    at: float
    count: int = 1
