"""The delivery of an announcement to a webhook as a durable run: posts it, tries again later, and gives up at last."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import structlog

from autotuner.core.announcement import Announcement, DeliveryProgress, Webhook, WebhookAnswer
from autotuner.core.run import Finish, Run, RunState
from autotuner.runs.kind import Do, Kind, Later, Step, Work
from autotuner.runs.lease import Hold, StopRequested

POST_S = 10.0
"""Time limit for connection, handshake, request and answer together; a receiver should answer first and do its work
later."""

DELAYS_S = (10.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0, 43200.0)
"""Seconds to wait after each failed attempt: short delays for a receiver that restarts, then long ones for a fault that
a person has to repair (20.6 hours in all)."""

Post = Callable[[Webhook, Announcement, Hold], WebhookAnswer | None]
"""Function that posts an announcement to a webhook; it returns None if the hold was asked to stop before an answer
came."""

MOST_ATTEMPTS = len(DELAYS_S) + 1

_JITTER = 0.25
"""Largest random extension of a delay, as a share, so that deliveries that failed together are not repeated
together."""

_log = structlog.get_logger(__name__)


def delay_s(attempts: int, luck: float, retry_after_s: float | None = None) -> float | None:
    """Return the seconds until the next attempt to post an announcement to a webhook; None after the last attempt.

    Args:
        attempts: Number of attempts so far, 1 or more.
        luck: A random number in 0..1 that spreads the delays.
        retry_after_s: Delay that the receiver asked for. It is used if it is longer than the usual delay, but not
            beyond the longest delay.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    wanted = max(DELAYS_S[attempts - 1], min(retry_after_s or 0.0, DELAYS_S[-1]))
    return wanted * (1 + _JITTER * luck)


class DeliveryMachine:
    """The machine of one delivery: it posts an announcement to a webhook, and decides whether to post it again later.

    ``luck`` returns a random number in 0..1. It spreads the delays, so that deliveries do not all repeat at once.
    """

    def __init__(self, run: Run, luck: Callable[[], float]) -> None:
        self._progress: DeliveryProgress = run.progress
        self._announcement: Announcement = run.request
        self._luck = luck
        self._answer: WebhookAnswer | None = None

    def next(self, now: float) -> Step:
        """Return the next step: post the announcement to the webhook; after an answer, end the delivery or retry."""
        answer = self._answer
        if answer is None:
            self._progress = replace(self._progress, num_attempts=self._progress.num_attempts + 1)
            return Do(action=self._announcement, progress=self._progress)
        attempts = self._progress.num_attempts
        if answer.is_accepted:
            _log.info("delivery.delivered", attempts=attempts)
            return Finish(state=RunState.COMPLETE, detail=answer.detail)
        wait_s = None if answer.is_gone else delay_s(attempts, self._luck(), answer.retry_after_s)
        if wait_s is None:
            _log.warning("delivery.dead", attempts=attempts)
            return Finish(state=RunState.FAILED, detail=answer.detail)
        _log.info("delivery.put_off", wait_s=round(wait_s, 1))
        return Later(at=now + wait_s, detail=answer.detail)

    def tell(self, outcome: WebhookAnswer) -> None:
        """Record the receiver's answer to the latest post. ``next`` then decides whether to post again."""
        self._answer = outcome


def delivery_kind(
    post: Post, find_webhook: Callable[[str], Webhook], luck: Callable[[], float] = random.random
) -> Kind:
    """Return the kind of run that posts announcements (messages about outcomes) to webhooks, for a worker.

    A receiver gets each announcement at least once. If a worker dies after it got the receiver's answer and before it
    stored the answer, the next worker posts again, with the same ``webhook-id``. Each post takes ``POST_S`` seconds at
    most.
    """

    def begin(hold: Hold) -> Work:
        def perform(announcement: Announcement) -> WebhookAnswer:
            answer = post(find_webhook(hold.run.subject), announcement, hold)
            if answer is None:
                raise StopRequested(hold.stop())
            return answer

        return Work(machine=DeliveryMachine(hold.run, luck), perform=perform)

    return Kind(name="delivery", begin=begin, span="delivery.post", least_lease_s=6 * POST_S)
