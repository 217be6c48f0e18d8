"""Announcements of outcomes, the webhooks that carry them, and how each delivery stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Announcement", "AnnouncementKind", "Delivery", "DeliveryState", "PayloadFormat", "Webhook"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; it may be sent again by hand


@dataclass(frozen=True, slots=True, kw_only=True)
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
