"""Runs: the states of durable work, the lease of the worker that does it, and the workers that are known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RENEWALS_PER_LEASE = 4
"""A lease survives three renewals that fail or come late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A worker's hold on a sweep, a check or a delivery; two equal ones have had no sign of life between them.

    Attributes:
        id: What is held.
        owner: The worker that holds it.
        renewals: How often a worker has said that it works on it.
        lease_until: What the holder's wall clock promised: other clocks cannot be held to it, but a worker of an older
            release counts no renewals, and is seen to live by this.
        lease_s: How long the holder may be silent; None: a worker of an older release did not say.
    """

    id: str
    owner: str
    renewals: int
    lease_until: float | None = None
    lease_s: float | None = None


SIGN_S = 10.0
"""How often a worker tells that it lives."""

_SILENT_S = 6 * SIGN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorker:
    """A process that runs sweeps, for people to look at: what it may be given is decided by leases, not by this.

    Attributes:
        name: What it holds its leases under.
        version: Its release.
        started_at: Epoch seconds.
        seen_at: When it last told that it lives, epoch seconds of its own clock.
    """

    name: str
    version: str
    started_at: float
    seen_at: float

    def is_alive(self, now: float) -> bool:
        """Whether it told of itself within a minute; a clock that is ahead of ``now`` is no reason to doubt it."""
        return now - self.seen_at <= _SILENT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """What was asked, how far it is computed, and what it says.

    Attributes:
        id: Content key of the question and of what it is answered by.
        question: Document of a ``search.planning.request.PlanRequest``.
        created_at: Epoch seconds at which it was first asked for, as is the next.
        computed_at: When the answer was there; None before.
        answer: Document of a ``search.planning.plan.Plan``; None before.
        num_done: Pieces of work that are done.
        num_known: Pieces of work that there are as far as is known.
        owner: The process that computes it; None where none does.
        lease_until: Epoch seconds until which the owner means to keep it, by its own clock.
        renewals: How often a process has said that it computes it, so that others see whether one still does.
        lease_s: For how long the owner may be silent before another takes over.
    """

    id: str
    question: str
    created_at: float
    computed_at: float | None = None
    answer: str | None = None
    num_done: int = 0
    num_known: int = 0
    owner: str | None = None
    lease_until: float | None = None
    renewals: int = 0
    lease_s: float | None = None


class SweepState(StrEnum):
    """Where a sweep stands."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """No further change will come unless somebody asks for more."""
        return self not in (SweepState.QUEUED, SweepState.RUNNING, SweepState.PAUSED)


class StopReason(StrEnum):
    """Why a sweep ended."""

    TRIAL_BUDGET = "trial_budget"
    TIME_BUDGET = "time_budget"
    ACCELERATOR_HOURS_BUDGET = "accelerator_hours_budget"
    SPACE_EXHAUSTED = "space_exhausted"
    NO_IMPROVEMENT = "no_improvement"
    NOTHING_TO_GAIN = "nothing_to_gain"
    COMPARED = "compared"  # of a challenged sweep
    ALL_TRIALS_FAIL = "all_trials_fail"
    CANNOT_RUN = "cannot_run"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd:
    """How a sweep ended: in which state, and why, as a word and as a sentence with its numbers."""

    state: SweepState
    reason: StopReason
    detail: str
