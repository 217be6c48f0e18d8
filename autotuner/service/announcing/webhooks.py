"""Webhooks as callers add and try them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from autotuner.core.announcement import Announcement, AnnouncementKind, Answer, Webhook
from autotuner.core.errors import InvalidInput
from autotuner.runs.clock import Clock
from autotuner.runs.delivery import Post
from autotuner.runs.hold import Hold
from autotuner.service.announcing.destination import check_url
from autotuner.service.announcing.payloads import check_secret, new_secret, payload, signed_headers
from autotuner.service.announcing.posting import Flag, Poster
from autotuner.service.networks import Network

if TYPE_CHECKING:
    from autotuner.store.announcements import AnnouncementStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """Where announcements may go, and whether they arrive."""

    store: AnnouncementStore
    poster: Poster
    clock: Clock
    allowed: tuple[Network, ...] = ()
    """Networks that may be posted to beside the public internet."""
    public_url: str | None = None
    """Where people reach the service, for links."""

    def add(self, webhook: Webhook) -> Webhook:
        """Store a new one, with a secret if it has none; whatever is announced from now on goes there.

        Raises:
            InvalidInput: Its URL leads nowhere, or where nothing may be posted; or its secret is none.
            Conflict: Its name is taken.
        """
        check_url(webhook.url, self.allowed)
        if webhook.secret:
            check_secret(webhook.secret)
        added = replace(webhook, secret=webhook.secret or new_secret(), created_at=self.clock.now())
        self.store.save_webhook(added)
        return added

    def test(self, name: str) -> Answer:
        """Post something to a webhook now, once, and say how that ended."""
        webhook, now = self.store.get_webhook(name), self.clock.now()
        told = Announcement(
            id=f"test-{uuid4().hex[:10]}",
            at=now,
            kind=AnnouncementKind.WEBHOOK_TEST,
            title=f"Test of the webhook {name}",
            text="outcomes will be told as this one is",
            path="/webhooks",
            subject_id=name,
            facts={"webhook": name},
        )
        answer = post(self.poster, webhook, told, now=now, public_url=self.public_url)
        assert answer is not None  # nobody stops it
        return answer


def post(
    poster: Poster,
    webhook: Webhook,
    announcement: Announcement,
    *,
    now: float,
    public_url: str | None,
    stop: Flag | None = None,
) -> Answer | None:
    """Post an announcement to a webhook, signed with its secret; None if it was stopped before it was answered."""
    body = payload(announcement, webhook.format, public_url)
    try:
        return poster.post(webhook.url, body, signed_headers(webhook.secret, announcement.id, now, body), stop)
    except InvalidInput as error:  # a URL that an older release took
        return Answer(status=None, detail=f"not posted: {error.rule}")


def post_by(poster: Poster, clock: Clock, public_url: str | None) -> Post:
    """Return what posts the announcements of a service that people reach at a URL."""

    def posted(webhook: Webhook, announcement: Announcement, hold: Hold) -> Answer | None:
        return post(poster, webhook, announcement, now=clock.now(), public_url=public_url, stop=hold)

    return posted
