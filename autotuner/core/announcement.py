"""Announcements: what webhooks and feeds are told, and their troubles."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

from autotuner.core.cluster import SIMULATED
from autotuner.core.value import value

if TYPE_CHECKING:
    from autotuner.core.sweep import SweepOverview


def announce_end(sweep: SweepOverview) -> Announcement:
    """What is told of a finished sweep: how it ended, and the best that it found; anew where it had ended before."""
    source, times = _source(sweep), sweep.interventions.num_reopened
    best = "" if sweep.best_mfu is None else f", best MFU {100 * sweep.best_mfu:.1f} % {source}"
    return Announcement(
        id=f"an-{sweep.id}" if not times else f"an-{sweep.id}-{times + 1}",
        at=sweep.finished_at or sweep.created_at,
        kind=AnnouncementKind.SWEEP_FINISHED,
        title=f"Sweep {sweep.name or sweep.id}, {sweep.model} on {sweep.cluster}: {sweep.state.value}{best}",
        text=sweep.stop_detail,
        path=f"/sweeps/{sweep.id}",
        subject_id=sweep.id,
        facts={
            "name": sweep.name,
            "model": sweep.model,
            "cluster": sweep.cluster,
            "state": sweep.state.value,
            "stop_reason": sweep.stop_reason.value if sweep.stop_reason else None,
            "num_trials": sum(sweep.num_trials.values()),
            "accelerator_hours": sweep.accelerator_hours,
            f"best_{source}_mfu": sweep.best_mfu,
        },
    )


def _source(sweep: SweepOverview) -> str:
    """What its figures are called, as in its answers over REST."""
    if sweep.trial_cluster is not None:
        return "estimated"
    return "simulated" if sweep.engine == SIMULATED else "measured"


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


class AnnouncementKind(StrEnum):
    """What there is to hear of."""

    RETUNE_UNCHANGED = "retune.unchanged"
    RETUNE_BETTER_FOUND = "retune.better_found"
    RETUNE_REGRESSION = "retune.regression"
    RETUNE_COULD_NOT_RUN = "retune.could_not_run"
    GATE_PASSED = "gate.passed"
    GATE_FAILED = "gate.failed"
    GATE_UNDECIDED = "gate.undecided"
    GATE_NO_BASELINE = "gate.no_baseline"
    GATE_COULD_NOT_RUN = "gate.could_not_run"
    GATE_CANCELLED = "gate.cancelled"
    SWEEP_FINISHED = "sweep.finished"  # of sweeps that somebody asked for
    WEBHOOK_TEST = "webhook.test"  # posted to one webhook by hand, and never stored


@value
class Announcement:
    """An outcome, as the feed and the webhooks tell it.

    Attributes:
        at: Epoch seconds.
        title: One line.
        text: The outcome as its record says it.
        path: Where a browser finds it, below the service's address.
        subject_id: Id of the run, gate or sweep.
        facts: Numbers and names for a program, flat.
    """

    id: str
    at: float
    kind: AnnouncementKind
    title: str
    text: str
    path: str
    subject_id: str
    facts: dict[str, object]


class PayloadFormat(StrEnum):
    """What is posted."""

    JSON = "json"
    SLACK = "slack"


@value
class Webhook:
    """Where announcements go.

    Attributes:
        kinds: Those that it wants; empty: all.
        secret: Key of the signature; never shown again.
        created_by: Name of the caller who added it; empty where the service asks nobody.
    """

    name: str
    url: str
    secret: str
    kinds: tuple[AnnouncementKind, ...] = ()
    format: PayloadFormat = PayloadFormat.JSON
    created_at: float = 0.0
    created_by: str = ""


@value
class DeliveryProgress:
    """What was tried of a delivery by now."""

    num_attempts: int = 0


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; it may be sent again by hand


@value
class Delivery:
    """One announcement on its way to one webhook.

    Attributes:
        attempts: How often it was posted.
        next_attempt_at: When it may be posted (again), epoch seconds; while it is posted, when its sender counts as
            dead. None once it has ended.
        detail: What the receiver last answered, or why it could not be reached.
    """

    id: str
    webhook: str
    announcement: Announcement
    state: DeliveryState
    attempts: int = 0
    created_at: float
    next_attempt_at: float | None = None
    ended_at: float | None = None
    detail: str = ""


@value
class Answer:
    """How a post to a webhook ended.

    Attributes:
        status: Of HTTP; None where no answer came.
        detail: What was answered, or why nothing was, on one line.
        retry_after_s: How long the receiver wants to be left alone; None where it does not say.
    """

    status: int | None
    detail: str
    retry_after_s: float | None = None

    @property
    def is_accepted(self) -> bool:
        """The receiver has it."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_gone(self) -> bool:
        """The receiver wants no more of it, ever."""
        return self.status == HTTPStatus.GONE
