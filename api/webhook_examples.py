"""Examples of webhooks, deliveries and the feed, for the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from api.feeds import Feed
from api.schemas import DeliveryPage, WebhookCreated, WebhookList, WebhookTest, WebhookView
from autotuner.domain.upkeep.announcement import (
    Announcement,
    AnnouncementKind,
    Delivery,
    DeliveryState,
    PayloadFormat,
)

__all__ = ["WEBHOOK_ANSWERS", "WEBHOOK_BODIES"]

_AT = 1_760_000_000.0
_HOME = "https://tuner.example.com/"


def _bodies() -> dict[str, Any]:
    return {
        "everything, for a program": {"name": "ours", "url": "https://hooks.example.com/autotuner"},
        "what is bad news, in Slack": {
            "name": "slack",
            "url": "https://hooks.slack.com/services/T000/B000/XXXX",
            "format": "slack",
            "kinds": ["retune.regression", "retune.could_not_run", "gate.failed"],
        },
    }


def _webhook() -> WebhookView:
    return WebhookView(
        name="slack",
        posts_to="https://hooks.slack.com",
        kinds=(AnnouncementKind.RETUNE_REGRESSION, AnnouncementKind.GATE_FAILED),
        format=PayloadFormat.SLACK,
        created_at=_AT,
        num_pending=1,
        num_dead=0,
    )


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


def _delivery() -> Delivery:
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


def _feed() -> Feed:
    return Feed(announcements=(_announcement(),), home=_HOME, url=f"{_HOME}api/v1/feed", next_url=None, now=_AT)


WEBHOOK_BODIES: Mapping[str, Callable[[], dict[str, Any]]] = {"create_webhook": _bodies}
"""Bodies that the operation takes, by what they show."""

WEBHOOK_ANSWERS: Mapping[str, Callable[[], object]] = {
    "create_webhook": lambda: WebhookCreated(webhook=_webhook(), secret="whsec_…"),
    "list_webhooks": lambda: WebhookList(items=(_webhook(),)),
    "read_webhook": _webhook,
    "remove_webhook": _webhook,
    "test_webhook": lambda: WebhookTest(accepted=True, status=200, detail="HTTP 200 OK"),
    "list_deliveries": lambda: DeliveryPage(items=(_delivery(),), total=1, limit=50, offset=0),
    "send_again": _delivery,
    "json_feed": lambda: json.loads(_feed().as_json()),
    "atom_feed": lambda: _feed().as_atom(),
}
"""What a success of the operation answers."""
