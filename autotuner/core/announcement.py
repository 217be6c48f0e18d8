"""Announcements: outcomes that are sent to webhooks and shown in feeds, and the state of their deliveries."""

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
    """Return the announcement (a message for webhooks and feeds) that a sweep has ended, with its best result.

    If people open the sweep again and it ends again, the second announcement has a new id.
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
    """The kinds of events that webhooks and feeds announce, such as a finished sweep or a failed regression gate."""

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
"""Meaning of each kind of announcement."""


@value
class Announcement:
    """One announced event, such as the end of a sweep, as feeds and webhooks carry it."""

    id: str
    at: float
    """Time of the outcome, in epoch seconds."""
    kind: AnnouncementKind
    title: str
    """A title of one line."""
    text: str
    """Description of the outcome, in the words of its record."""
    path: str
    """Path of the page that shows the outcome, below the service's address."""
    subject_id: str
    """Id of the run, gate or sweep."""
    facts: dict[str, object]
    """Numbers and names for programs, as a flat object."""


class PayloadFormat(StrEnum):
    """The format of the body that is posted to a webhook: ``json`` for programs, ``slack`` for Slack messages."""

    JSON = "json"
    SLACK = "slack"


@value
class Webhook:
    """An address on the web to which announcements are posted, as it is stored."""

    name: str
    url: str
    secret: str
    """Key that signs the deliveries; never shown again."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """Kinds of announcements that the webhook gets; empty: all."""
    format: PayloadFormat = PayloadFormat.JSON
    created_at: float = 0.0
    created_by: str = ""
    """Name of the caller who added the webhook; empty if the service has no login."""


@value
class WebhookCreate:
    """A request to add a webhook: an address to which the service posts announcements of finished sweeps and more."""

    name: Key
    """Unique name of the webhook."""
    url: str
    """Address that announcements are posted to."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """Kinds of announcements that the webhook gets; empty: all."""
    format: PayloadFormat = PayloadFormat.JSON
    """`json` for programs, `slack` for an incoming webhook of Slack or of a service that understands its messages."""
    secret: str | None = None
    """Key that signs the deliveries: `whsec_` and base64; left out, the service makes one."""


@value
class WebhookStanding:
    """A webhook as users see it: without its secrets, with its numbers of waiting and of abandoned deliveries."""

    name: str
    posts_to: str
    """Scheme and host of the webhook's URL. The rest is not shown, because it is often a credential."""
    kinds: tuple[AnnouncementKind, ...]
    """Kinds of announcements that the webhook gets; empty: all."""
    format: PayloadFormat
    created_at: float
    num_pending: int
    """Number of deliveries that are not made yet."""
    num_dead: int
    """Number of deliveries that were given up after too many attempts."""
    created_by: str = ""
    """Name of the caller who added the webhook; empty if the service has no login."""


@value
class WebhookCreated:
    """A new webhook, with the secret key that signs its messages."""

    webhook: WebhookStanding
    secret: str
    """Key that signs the deliveries, for the receiver; never shown again."""


@value
class DeliveryProgress:
    """The progress of one delivery: the number of attempts so far to post one announcement to one webhook."""

    num_attempts: int = 0


@value
class DeliveryRun(Run):
    """The durable run (background work that survives restarts) that delivers one announcement to one webhook.

    ``subject`` is the name of the webhook.
    """

    kind: Literal["delivery"] = "delivery"
    request: Announcement
    progress: DeliveryProgress


class DeliveryState(StrEnum):
    """The state of a delivery: ``pending``, ``delivered``, or ``dead`` after too many failed attempts.

    A person may send a dead delivery again.
    """

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"  # given up; it may be sent again by hand


@value
class Delivery:
    """One announcement (a message about an event) that is being delivered, or was delivered, to one webhook."""

    id: str
    webhook: str
    announcement: Announcement
    state: DeliveryState
    attempts: int = 0
    """Number of times the announcement was posted to the webhook."""
    created_at: float
    next_attempt_at: float | None = None
    """Time of the next attempt, in epoch seconds; None once the delivery has ended. While an attempt runs, this is the
    time after which its worker counts as dead."""
    ended_at: float | None = None
    detail: str = ""
    """The last answer of the receiver, or the reason why it could not be reached."""


@value
class WebhookAnswer:
    """The receiver's answer to one post to a webhook."""

    status: int | None
    """HTTP status of the receiver's answer; None if no answer came."""
    detail: str
    """Text of the answer, or the reason why no answer came, on one line."""
    retry_after_s: float | None = None
    """Seconds that the receiver asks to wait; None if it does not say."""

    @property
    @derived
    def is_accepted(self) -> bool:
        """True if the receiver accepted the post, that is, answered with an HTTP status from 200 to 299."""
        return self.status is not None and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_gone(self) -> bool:
        """True if the receiver answered with the HTTP status 410 (gone), so that it never wants another post."""
        return self.status == HTTPStatus.GONE
