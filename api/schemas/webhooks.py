"""Webhooks and deliveries, as they travel: a webhook's secret is shown once, and of its URL the host alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from autotuner.core.announcement import AnnouncementKind, Answer, Delivery, DeliveryState, PayloadFormat, Webhook
from autotuner.ports import AnnouncementStore, Page
from autotuner.service.announcing.destination import origin

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCreate:
    """Where announcements shall go.

    Attributes:
        name: Of the webhook, unique.
        url: What is posted to.
        kinds: What it wants; empty: everything.
        format: `json` for programs, `slack` for an incoming webhook of Slack or of what understands its messages.
        secret: Key of the signature, `whsec_` and base64; left out, one is made.
    """

    name: Annotated[str, Field(pattern=_NAME)]
    url: str
    kinds: tuple[AnnouncementKind, ...] = ()
    format: PayloadFormat = PayloadFormat.JSON
    secret: str | None = None

    def webhook(self) -> Webhook:
        """What is to be stored, its secret still to be made where none was given."""
        kinds = tuple(dict.fromkeys(self.kinds))
        return Webhook(name=self.name, url=self.url, kinds=kinds, format=self.format, secret=self.secret or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook, without what only its receiver may know.

    Attributes:
        posts_to: Scheme and host of its URL; the rest is often a credential.
        kinds: What it wants; empty: everything.
        num_pending: Deliveries that are still to be made.
        num_dead: Deliveries that were given up.
        created_by: Name of the caller who added it; empty where nobody was asked who they are.
    """

    name: str
    posts_to: str
    kinds: tuple[AnnouncementKind, ...]
    format: PayloadFormat
    created_at: float
    num_pending: int
    num_dead: int
    created_by: str = ""

    @classmethod
    def of(cls, webhook: Webhook, store: AnnouncementStore) -> Self:
        """It, with its deliveries counted."""
        return cls(
            name=webhook.name,
            posts_to=origin(webhook.url),
            kinds=webhook.kinds,
            format=webhook.format,
            created_at=webhook.created_at,
            num_pending=_count(store, webhook.name, DeliveryState.PENDING),
            num_dead=_count(store, webhook.name, DeliveryState.DEAD),
            created_by=webhook.created_by,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCreated:
    """A new webhook.

    Attributes:
        secret: Key of its signatures, for the receiver; never shown again.
    """

    webhook: WebhookView
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookList:
    """Webhooks by name."""

    items: tuple[WebhookView, ...]

    @classmethod
    def of(cls, store: AnnouncementStore) -> Self:
        """All that are stored."""
        return cls(items=tuple(WebhookView.of(each, store) for each in store.list_webhooks()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """What became of a test.

    Attributes:
        accepted: The receiver answered with a status of 200 to 299.
        status: Of HTTP; null where no answer came.
        detail: What was answered, or why nothing was.
    """

    accepted: bool
    status: int | None
    detail: str

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """The answer, as it is told."""
        return cls(accepted=answer.is_accepted, status=answer.status, detail=answer.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """Deliveries, newest first.

    Attributes:
        total: How many there are in all.
    """

    items: tuple[Delivery, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, store: AnnouncementStore, webhook: str | None, state: DeliveryState | None, page: Page) -> Self:
        """Those to one webhook, in one state, or all."""
        if webhook is not None:
            store.get_webhook(webhook)
        items, total = store.deliveries(webhook=webhook, state=state, page=page)
        return cls(items=tuple(items), total=total, limit=page.limit, offset=page.offset)


def _count(store: AnnouncementStore, webhook: str, state: DeliveryState) -> int:
    return store.deliveries(webhook=webhook, state=state, page=Page(limit=1))[1]
