"""Announcements: what webhooks and feeds are told, and their troubles."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from autotuner.core.documents import Key
from autotuner.core.run import Run
from autotuner.core.value import derived, value

if TYPE_CHECKING:
    from autotuner.core.sweep import SweepOverview


def announce_end(sweep: SweepOverview) -> Announcement:
    """What is told of a finished sweep: how it ended, and the best that it found; anew where it had ended before."""
    source, times = sweep.best_source, sweep.num_reopened
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
            "accelerator_hours": sweep.progress.accelerator_hours,
            f"best_{source}_mfu": sweep.best_mfu,
        },
    )


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
    SWEEP_FINISHED = "sweep.finished"
    WEBHOOK_TEST = "webhook.test"


ANNOUNCEMENT_MEANINGS: Mapping[AnnouncementKind, str] = {
    AnnouncementKind.RETUNE_UNCHANGED: "A run of a retune found no better layout, and no slowdown.",
    AnnouncementKind.RETUNE_BETTER_FOUND: "A run of a retune found a better layout.",
    AnnouncementKind.RETUNE_REGRESSION: "A run of a retune found that the layout in use became slower.",
    AnnouncementKind.RETUNE_COULD_NOT_RUN: "A run of a retune that was due could not run.",
    AnnouncementKind.GATE_PASSED: "A gate passed.",
    AnnouncementKind.GATE_FAILED: "A gate failed: the change makes training slower.",
    AnnouncementKind.GATE_UNDECIDED: "A gate ended without a decision.",
    AnnouncementKind.GATE_NO_BASELINE: "A gate had no baseline to compare with.",
    AnnouncementKind.GATE_COULD_NOT_RUN: "A gate could not measure its layout.",
    AnnouncementKind.GATE_CANCELLED: "Somebody cancelled a gate.",
    AnnouncementKind.SWEEP_FINISHED: "A sweep that somebody asked for ended.",
    AnnouncementKind.WEBHOOK_TEST: "A test that is posted to one webhook and never stored.",
}
"""The meaning of each kind."""


@value
class Announcement:
    """An outcome, as the feed and the webhooks tell it."""

    id: str
    at: float
    """Epoch seconds."""
    kind: AnnouncementKind
    title: str
    """One line."""
    text: str
    """The outcome as its record says it."""
    path: str
    """Where a browser finds it, below the service's address."""
    subject_id: str
    """Id of the run, gate or sweep."""
    facts: dict[str, object]
    """Numbers and names for a program, flat."""


class PayloadFormat(StrEnum):
    """What is posted."""

    JSON = "json"
    SLACK = "slack"


@value
class Webhook:
    """Where announcements go."""

    name: str
    url: str
    secret: str
    """Key of the signature; never shown again."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """Those that it wants; empty: all."""
    format: PayloadFormat = PayloadFormat.JSON
    created_at: float = 0.0
    created_by: str = ""
    """Name of the caller who added it; empty where the service asks nobody."""


@value
class WebhookCreate:
    """Where announcements shall go."""

    name: Key
    """Of the webhook, unique."""
    url: str
    """What is posted to."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """What it wants; empty: everything."""
    format: PayloadFormat = PayloadFormat.JSON
    """`json` for programs, `slack` for an incoming webhook of Slack or of what understands its messages."""
    secret: str | None = None
    """Key of the signature, `whsec_` and base64; left out, one is made."""


@value
class WebhookStanding:
    """A webhook, without what only its receiver may know."""

    name: str
    posts_to: str
    """Scheme and host of its URL; the rest is often a credential."""
    kinds: tuple[AnnouncementKind, ...]
    """What it wants; empty: everything."""
    format: PayloadFormat
    created_at: float
    num_pending: int
    """Deliveries that are still to be made."""
    num_dead: int
    """Deliveries that were given up."""
    created_by: str = ""
    """Name of the caller who added it; empty where nobody was asked who they are."""


@value
class WebhookCreated:
    """A new webhook."""

    webhook: WebhookStanding
    secret: str
    """Key of its signatures, for the receiver; never shown again."""


@value
class DeliveryProgress:
    """What was tried of a delivery by now."""

    num_attempts: int = 0


@value
class DeliveryRun(Run):
    """The run of a delivery; ``subject`` is the name of the webhook."""

    kind: Literal["delivery"] = "delivery"
    request: Announcement
    progress: DeliveryProgress


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; it may be sent again by hand


@value
class Delivery:
    """One announcement on its way to one webhook."""

    id: str
    webhook: str
    announcement: Announcement
    state: DeliveryState
    attempts: int = 0
    """How often it was posted."""
    created_at: float
    next_attempt_at: float | None = None
    """When it may be posted (again), epoch seconds; while it is posted, when its sender counts as dead. None once it
    has ended."""
    ended_at: float | None = None
    detail: str = ""
    """What the receiver last answered, or why it could not be reached."""


@value
class WebhookAnswer:
    """How a post to a webhook ended."""

    status: int | None
    """Of HTTP; None where no answer came."""
    detail: str
    """What was answered, or why nothing was, on one line."""
    retry_after_s: float | None = None
    """How long the receiver wants to be left alone; None where it does not say."""

    @property
    @derived
    def is_accepted(self) -> bool:
        """The receiver has it."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_gone(self) -> bool:
        """The receiver wants no more of it, ever."""
        return self.status == HTTPStatus.GONE
