"""AnnouncementStore: outcomes as they are told, webhooks, and the deliveries of the ones to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autotuner.core.announcement import Announcement, Delivery, DeliveryState, Webhook
from autotuner.ports.page import Page


class AnnouncementStore(Protocol):
    """Announcements, webhooks and deliveries; every method is one transaction, as in ``Store``.

    An announcement is stored in the transaction of the outcome that it tells, with a queued delivery (a ``Run``) for
    each webhook that then wants its kind.
    """

    def announce(self, announcement: Announcement) -> None:
        """Store one by itself; an id that is stored already raises ``Conflict``."""
        ...

    def feed(self, *, page: Page = Page()) -> tuple[Sequence[Announcement], int]:
        """Newest first, and how many there are in all."""
        ...

    # ------------------------------------------------------------------ webhooks
    def save_webhook(self, webhook: Webhook) -> None:
        """Store a new one; a name that is taken raises ``Conflict``."""
        ...

    def get_webhook(self, name: str) -> Webhook:
        """The one of that name; ``NotFound`` names the nearest."""
        ...

    def list_webhooks(self) -> Sequence[Webhook]:
        """By name."""
        ...

    def remove_webhook(self, name: str) -> None:
        """Forget it with its deliveries."""
        ...

    # ------------------------------------------------------------------ deliveries
    def send_again(self, delivery_id: str, *, now: float) -> Delivery:
        """Pending anew, due at once, with no attempts; one that is pending raises ``Conflict``."""
        ...

    def deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, page: Page = Page()
    ) -> tuple[Sequence[Delivery], int]:
        """Newest first, those to one webhook, in one state or all, and how many there are in all."""
        ...
