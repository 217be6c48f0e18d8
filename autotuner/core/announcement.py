"""Announcements: the outcomes that webhooks and feeds are told, and the state of their deliveries."""

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
    """Return the announcement that a sweep has ended, with its best result.

    A sweep that is opened again and ends again gets an announcement with a new id.
    """
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
    """The kinds of events that webhooks and feeds announce, such as a finished sweep or a failed gate."""

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
    """One announced event, such as the end of a sweep, as feeds and webhooks carry it."""

    id: str
    at: float
    """Epoch seconds."""
    kind: AnnouncementKind
    title: str
    """A title of one line."""
    text: str
    """The outcome in the words of its record."""
    path: str
    """Path of its page, below the service's address."""
    subject_id: str
    """Id of the run, gate or sweep."""
    facts: dict[str, object]
    """Numbers and names for programs, without nesting."""


class PayloadFormat(StrEnum):
    """The format of the body that is posted to a webhook."""

    JSON = "json"
    SLACK = "slack"


@value
class Webhook:
    """An address on the web to which announcements are posted, as it is stored."""

    name: str
    url: str
    secret: str
    """Key of the signature; never shown again."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """Kinds of announcements that it wants; empty: all."""
    format: PayloadFormat = PayloadFormat.JSON
    created_at: float = 0.0
    created_by: str = ""
    """Name of the caller who added it; empty where the service asks nobody."""


@value
class WebhookCreate:
    """A request to add a webhook."""

    name: Key
    """Unique name of the webhook."""
    url: str
    """Address that announcements are posted to."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """Kinds of announcements that it wants; empty: all."""
    format: PayloadFormat = PayloadFormat.JSON
    """`json` for programs, `slack` for an incoming webhook of Slack or of a service that understands its messages."""
    secret: str | None = None
    """Key of the signature, `whsec_` and base64; left out, one is made."""


@value
class WebhookStanding:
    """A webhook as it is shown: without its secrets, with the numbers of its open and failed deliveries."""

    name: str
    posts_to: str
    """Scheme and host of its URL. The rest of a URL is often a credential."""
    kinds: tuple[AnnouncementKind, ...]
    """Kinds of announcements that it wants; empty: all."""
    format: PayloadFormat
    created_at: float
    num_pending: int
    """Deliveries that are still to be made."""
    num_dead: int
    """Deliveries that were given up."""
    created_by: str = ""
    """Name of the caller who added it; empty if the service has no login."""


@value
class WebhookCreated:
    """A new webhook, with the secret key that signs its messages."""

    webhook: WebhookStanding
    secret: str
    """Key of its signatures, for the receiver; never shown again."""


@value
class DeliveryProgress:
    """The attempts so far to deliver one announcement to one webhook."""

    num_attempts: int = 0


@value
class DeliveryRun(Run):
    """The durable run that delivers one announcement to one webhook; ``subject`` is the name of the webhook."""

    kind: Literal["delivery"] = "delivery"
    request: Announcement
    progress: DeliveryProgress


class DeliveryState(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; it may be sent again by hand


@value
class Delivery:
    """One announcement that is being delivered, or was delivered, to one webhook."""

    id: str
    webhook: str
    announcement: Announcement
    state: DeliveryState
    attempts: int = 0
    """Number of times it was posted."""
    created_at: float
    next_attempt_at: float | None = None
    """Epoch seconds of the next attempt. While an attempt runs, the time when its sender counts as dead. None once it
    has ended."""
    ended_at: float | None = None
    detail: str = ""
    """The last answer of the receiver, or the reason why it could not be reached."""


@value
class WebhookAnswer:
    """The receiver's answer to one post to a webhook."""

    status: int | None
    """HTTP status; None if no answer came."""
    detail: str
    """The answer, or the reason why none came, on one line."""
    retry_after_s: float | None = None
    """Seconds that the receiver asks to wait; None if it does not say."""

    @property
    @derived
    def is_accepted(self) -> bool:
        """True if the receiver accepted the post."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_gone(self) -> bool:
        """True if the receiver answered that it never wants another post."""
        return self.status == HTTPStatus.GONE
