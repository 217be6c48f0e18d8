"""The health of a service: its database, the engines and workers of trials, and open incidents."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from urllib.parse import quote

from autotuner.core.value import derived, value


@value
class Health:
    """The answer to a liveness check. It says only that the process of the service runs."""

    status: Literal["ok"] = "ok"


@value
class Readiness:
    """The answer to a readiness check: the database answers, has the newest schema, and accepts writes."""

    schema_revision: str
    """Migration revision of the database."""
    num_workers: int
    """Number of workers that reported in the last minute. Without a worker, sweeps wait."""
    status: Literal["ready"] = "ready"


# ---------------------------------------------------------------- engines and workers
@value
class EngineStanding:
    """An engine (a system that starts trials, such as Slurm), and whether it answers."""

    name: str
    """Name of the engine, as in the field ``engine`` of a cluster."""
    kind: str
    """Kind of the engine: Slurm, Kubernetes, Ray, or processes of this machine. The engines ``local`` and ``simulated``
    are kinds of their own."""
    answers: bool
    """True if the engine answered just now and has all of its registered queues."""
    answer: str
    """Answer of the engine with its version; otherwise the reason why it did not answer, or the queue that it lacks."""
    queues: tuple[str, ...] = ()
    """Names that the field ``queue`` of a cluster may have; the first is the default."""
    max_parallel_trials: int | None = None
    """Most jobs that may wait or run at once; null: no limit."""


SIGN_S = 10.0
"""Seconds between two reports (heartbeats) of a worker."""

_SILENT_S = 6 * SIGN_S


@value
class KnownWorker:
    """A worker process that runs sweeps, as the worker last reported itself. The record is only for display.

    Leases, and not this record, decide which sweeps a worker may run.
    """

    name: str
    """Name of the worker, which its leases contain."""
    version: str
    """Release of the worker."""
    started_at: float
    """Time when the worker started, in epoch seconds."""
    seen_at: float
    """Time of the worker's last report, in epoch seconds of the worker's clock."""

    def is_alive(self, now: float) -> bool:
        """Return True if the worker's last report came at most a minute before ``now`` (epoch seconds).

        A report that is later than ``now`` counts, too, because the worker's clock may be ahead.
        """
        return now - self.seen_at <= _SILENT_S


@value
class WorkerStanding:
    """A worker process that runs sweeps: its release, its last report, and the sweep that it runs now."""

    name: str
    """Name of the worker."""
    version: str
    """Release of the worker."""
    started_at: float
    """Time when the worker started, in epoch seconds."""
    seen_at: float
    """Time of the worker's last report, in epoch seconds of the worker's clock. A worker reports every ten seconds."""
    is_alive: bool
    """True if the worker reported in the last minute."""
    sweep_id: str | None
    """Id of the sweep that the worker runs; null: the worker waits for one."""


# ---------------------------------------------------------------- what went wrong
class IncidentKind(StrEnum):
    """The kinds of incidents that operators see, the worst first."""

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
class Incident:
    """An incident that somebody should look at, such as a failed sweep or waiting sweeps without a worker."""

    kind: IncidentKind
    subject: str
    """Id of the sweep or gate, or name of the retune, cluster or webhook, that has the incident; empty if the incident
    concerns none of them."""
    name: str
    """Name of that object for people; empty if it has none."""
    detail: str
    """Description of the incident with its numbers, as a sentence without a full stop."""
    at: float
    """Time of the incident, in epoch seconds."""
    count: int = 1
    """Number of incidents of the same kind that this record summarises."""

    @property
    @derived
    def path(self) -> str:
        """The path of the page where somebody can handle the incident, relative to the service's address."""
        subject = quote(self.subject, safe="")
        match self.kind:
            case IncidentKind.NO_WORKER:
                return "/?state=queued"
            case IncidentKind.REGRESSION | IncidentKind.RETUNE_COULD_NOT_RUN:
                return f"/retunes/{subject}"
            case IncidentKind.GATE_FAILED | IncidentKind.GATE_COULD_NOT_RUN | IncidentKind.GATE_UNDECIDED:
                return f"/gates/{subject}"
            case IncidentKind.SWEEP_FAILED:
                return f"/sweeps/{subject}"
            case IncidentKind.CHECK_FAILED:
                return f"/clusters/{subject}"
            case IncidentKind.DELIVERIES_DEAD:
                return "/webhooks?state=dead"
