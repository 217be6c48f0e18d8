"""Examples of webhooks, deliveries and the feed."""

from __future__ import annotations

import json
from typing import Any

from api.feeds import Feed
from api.schemas import DeliveryPage, WebhookCreated, WebhookList, WebhookTest, WebhookView
from autotuner.core.announcement import Announcement, AnnouncementKind, Delivery, DeliveryState, PayloadFormat

_AT = 1_760_000_000.0
_HOME = "https://tuner.example.com/"


def webhook_bodies() -> dict[str, Any]:
    """Bodies of ``POST /webhooks``."""
    return {
        "everything, for a program": {"name": "ours", "url": "https://hooks.example.com/autotuner"},
        "what is bad news, in Slack": {
            "name": "slack",
            "url": "https://hooks.slack.com/services/T000/B000/XXXX",
            "format": "slack",
            "kinds": ["retune.regression", "retune.could_not_run", "gate.failed"],
        },
    }


def webhook() -> WebhookView:
    """A webhook that posts bad news to Slack."""
    return WebhookView(
        name="slack",
        posts_to="https://hooks.slack.com",
        kinds=(AnnouncementKind.RETUNE_REGRESSION, AnnouncementKind.GATE_FAILED),
        format=PayloadFormat.SLACK,
        created_at=_AT,
        num_pending=1,
        num_dead=0,
    )


def webhook_created() -> WebhookCreated:
    """A new webhook, with the secret that is told once."""
    return WebhookCreated(webhook=webhook(), secret="whsec_…")


def webhook_list() -> WebhookList:
    """A list with one webhook."""
    return WebhookList(items=(webhook(),))


def webhook_test() -> WebhookTest:
    """A test that the receiver took."""
    return WebhookTest(accepted=True, status=200, detail="HTTP 200 OK")


def delivery() -> Delivery:
    """A delivery that was refused twice and waits."""
    return Delivery(
        id="dl-4f9c2kq7xz",
        webhook="slack",
        announcement=_announcement(),
        state=DeliveryState.PENDING,
        attempts=2,
        created_at=_AT + 600,
        next_attempt_at=_AT + 672,
        detail="HTTP 503 Service Unavailable",
    )


def delivery_page() -> DeliveryPage:
    """A page with one delivery."""
    return DeliveryPage(items=(delivery(),), total=1, limit=50, offset=0)


def json_feed() -> object:
    """The feed as JSON Feed 1.1."""
    return json.loads(_feed().as_json())


def atom_feed() -> str:
    """The feed as Atom."""
    return _feed().as_atom()


def _announcement() -> Announcement:
    return Announcement(
        id="an-8k2mxq4zab",
        at=_AT + 600,
        kind=AnnouncementKind.RETUNE_REGRESSION,
        title="nightly-llama: regression",
        text="the incumbent lost 7.1 % ± 0.8 % since 2025-10-07: driver was 570.86 and is 575.51",
        path="/retunes/nightly-llama",
        subject_id="rr-5h3qk8vzce",
        facts={"retune": "nightly-llama", "loss": 0.071},
    )


def _feed() -> Feed:
    return Feed(announcements=(_announcement(),), home=_HOME, url=f"{_HOME}api/v1/feed", next_url=None, now=_AT)
