"""Sender: posts what is pending, one delivery after the other, and stores how each attempt ended."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Event as Flag

import structlog

from autotuner.announcing.backoff import delay_s
from autotuner.announcing.payloads import payload
from autotuner.announcing.posting import LIMIT_S, Answer, Poster
from autotuner.announcing.signature import signed_headers
from autotuner.core.announcement import Announcement, Delivery, DeliveryState, Webhook
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.lease_watch import LeaseWatch
from autotuner.ports import AnnouncementStore, Clock
from autotuner.tracing import working_on

_LEASE_S = 6 * LIMIT_S
"""A sender that is silent for so long counts as dead, and another posts; the look-up of a name may take half of it."""

_log = structlog.get_logger(__name__)


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


class Sender:
    """Posts deliveries until told to stop; several may share a store, and each attempt is made by one of them.

    A receiver gets every announcement at least once: a sender that dies between an answer and its note of it is
    followed by one that posts again, with the same ``webhook-id``.

    Args:
        owner: Name of this sender, unique among all that share the store.
        public_url: Where people reach the service, for links.
        shutdown: Set it to give back the delivery that is under way, and return.
        luck: Uniform in 0..1, for the jitter.
    """

    def __init__(
        self,
        store: AnnouncementStore,
        poster: Poster,
        clock: Clock,
        *,
        owner: str,
        public_url: str | None = None,
        shutdown: Flag | None = None,
        luck: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._poster = poster
        self._clock = clock
        self._public_url = public_url
        self._shutdown = shutdown or Flag()
        self._luck = luck
        self._owner = owner
        self._watch = LeaseWatch(clock, lease_s=_LEASE_S)

    def send_next(self) -> bool:
        """Make one attempt at the delivery that is due longest; False if none is due."""
        lapsed = self._watch.lapsed(self._store.held_deliveries)
        delivery = self._store.claim_delivery(owner=self._owner, now=self._clock.now(), lease_s=_LEASE_S, lapsed=lapsed)
        if delivery is None:
            return False
        try:
            webhook = self._store.get_webhook(delivery.webhook)
        except NotFound:  # removed since, with its deliveries
            return True
        now, told = self._clock.now(), delivery.announcement
        with working_on("delivery.post", delivery_id=delivery.id, webhook=delivery.webhook):
            answer = post(self._poster, webhook, told, now=now, public_url=self._public_url, stop=self._shutdown)
            if answer is None:
                self._store.retry_delivery(delivery.id, next_attempt_at=now, detail="its sender was stopped meanwhile")
            else:
                self._settle(delivery, answer)
        return True

    def _settle(self, delivery: Delivery, answer: Answer) -> None:
        now = self._clock.now()
        if answer.is_accepted:
            self._end(delivery, DeliveryState.DELIVERED, answer, now)
            return
        wait_s = None if answer.is_gone else delay_s(delivery.attempts, self._luck(), answer.retry_after_s)
        if wait_s is None:
            self._end(delivery, DeliveryState.DEAD, answer, now)
            return
        self._store.retry_delivery(delivery.id, next_attempt_at=now + wait_s, detail=answer.detail)
        _log.info("delivery.put_off", wait_s=round(wait_s, 1))

    def _end(self, delivery: Delivery, state: DeliveryState, answer: Answer, now: float) -> None:
        self._store.end_delivery(delivery.id, state, answer.detail, now=now)
        say = _log.warning if state is DeliveryState.DEAD else _log.info
        say(f"delivery.{state.value}", attempts=delivery.attempts)
