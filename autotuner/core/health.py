"""Whether a service works: its database, the engines and workers of trials, and what went wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from urllib.parse import quote

from autotuner.core.value import derived, value


@value
class Health:
    """The process answers."""

    status: Literal["ok"] = "ok"


@value
class Readiness:
    """The database answers, is migrated and takes writes."""

    schema_revision: str
    """The migration that the database is at."""
    num_workers: int
    """Workers that told of themselves within a minute; without one, sweeps wait."""
    status: Literal["ready"] = "ready"


# ---------------------------------------------------------------- engines and workers
@value
class EngineStanding:
    """An engine, and whether it answers."""

    name: str
    """What a cluster's ``engine`` says."""
    kind: str
    """Slurm, Kubernetes, Ray, processes of this machine; ``local`` and ``simulated`` are their own."""
    answers: bool
    """Whether it answered just now and has all of its queues."""
    answer: str
    """What it said, with its version; or why it did not answer, or what it lacks."""
    queues: tuple[str, ...] = ()
    """What a cluster's ``queue`` may say; the first is the default."""
    max_parallel_trials: int | None = None
    """Jobs that may wait or run at once; null: as many as there is room for."""


SIGN_S = 10.0
"""How often a worker tells that it lives."""

_SILENT_S = 6 * SIGN_S


@value
class KnownWorker:
    """A process that runs sweeps, for people to look at: what it may be given is decided by leases, not by this."""

    name: str
    """What it holds its leases under."""
    version: str
    """Its release."""
    started_at: float
    """Epoch seconds."""
    seen_at: float
    """When it last told that it lives, epoch seconds of its own clock."""

    def is_alive(self, now: float) -> bool:
        """Whether it told of itself within a minute; a clock that is ahead of ``now`` is no reason to doubt it."""
        return now - self.seen_at <= _SILENT_S


@value
class WorkerStanding:
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


# ---------------------------------------------------------------- what went wrong
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


@value
class Trouble:
    """One thing that needs somebody."""

    kind: TroubleKind
    subject: str
    """Id of the sweep or gate, name of the retune, cluster or webhook; empty where none waits alone."""
    name: str
    """What people call it; empty where nothing has one."""
    detail: str
    """What happened, with its numbers, as a sentence without a full stop."""
    at: float
    """When, epoch seconds."""
    count: int = 1
    """How many of that kind this stands for."""

    @property
    @derived
    def path(self) -> str:
        """Of the page where somebody goes on with it, below the service's address."""
        subject = quote(self.subject, safe="")
        match self.kind:
            case TroubleKind.NO_WORKER:
                return "/?state=queued"
            case TroubleKind.REGRESSION | TroubleKind.RETUNE_COULD_NOT_RUN:
                return f"/retunes/{subject}"
            case TroubleKind.GATE_FAILED | TroubleKind.GATE_COULD_NOT_RUN | TroubleKind.GATE_UNDECIDED:
                return f"/gates/{subject}"
            case TroubleKind.SWEEP_FAILED:
                return f"/sweeps/{subject}"
            case TroubleKind.CHECK_FAILED:
                return f"/clusters/{subject}"
            case TroubleKind.DELIVERIES_DEAD:
                return "/webhooks?state=dead"
