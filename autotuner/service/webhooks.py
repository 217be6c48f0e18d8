"""Webhooks: sends announcements as signed JSON or as messages for Slack, and stores where to send them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from autotuner.core.announcement import (
    Announcement,
    AnnouncementKind,
    DeliveryState,
    PayloadFormat,
    Webhook,
    WebhookAnswer,
    WebhookCreate,
    WebhookStanding,
)
from autotuner.core.codec import to_plain
from autotuner.core.documents import extended
from autotuner.core.errors import InvalidInput
from autotuner.core.units import format_rate
from autotuner.runs.clock import Clock
from autotuner.service.networks import Network
from autotuner.service.posting import Flag, Poster, check_url, origin
from autotuner.store.options import Page

if TYPE_CHECKING:
    from autotuner.store.announcements import AnnouncementStore

_MOST_TEXT = 3000
_MOST_FIELDS = 10
_MOST_FIELD = 2000
"""Maximum length that Slack accepts for a section's text, for its fields, and for each field.

Source: docs.slack.dev/reference/block-kit/blocks/section-block.
"""


def payload(announcement: Announcement, form: PayloadFormat, public_url: str | None) -> bytes:
    """Return the body to post to a webhook for an announcement of an outcome, in the webhook's format.

    The signature covers exactly these bytes. Without a public URL, the body has no links.
    """
    match form:
        case PayloadFormat.JSON:
            document = _document(announcement, public_url)
        case PayloadFormat.SLACK:
            document = _slack(announcement, public_url)
    return json.dumps(document, separators=(",", ":")).encode()


def link(announcement: Announcement, public_url: str | None) -> str | None:
    """Return the URL of the page with the announced result, or None if the service has no public URL."""
    return f"{public_url.rstrip('/')}{announcement.path}" if public_url else None


def iso_time(epoch_s: float) -> str:
    """Return a time as text in the format of RFC 3339, such as ``2026-11-20T15:51:07Z``."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _document(announcement: Announcement, public_url: str | None) -> dict[str, Any]:
    """Return the type, the time and the data of an announcement, as the Standard Webhooks specification recommends."""
    return {
        "type": announcement.kind.value,
        "timestamp": iso_time(announcement.at),
        "data": {
            "id": announcement.id,
            "title": announcement.title,
            "text": announcement.text,
            "url": link(announcement, public_url),
            "path": announcement.path,
            "subject_id": announcement.subject_id,
            "facts": to_plain(announcement.facts),
        },
    }


def _slack(announcement: Announcement, public_url: str | None) -> dict[str, Any]:
    """Return an announcement as a Slack message: title and text, then the facts side by side."""
    title, url = _escaped(announcement.title), link(announcement, public_url)
    head = f"*<{url}|{title}>*" if url else f"*{title}*"
    blocks: list[dict[str, Any]] = [_section(text=_mrkdwn(f"{head}\n{_escaped(announcement.text)}", _MOST_TEXT))]
    facts = [f"*{_escaped(_label(name))}*\n{_escaped(_said(name, value))}" for name, value in _shown(announcement)]
    if facts:
        blocks.append(_section(fields=[_mrkdwn(fact, _MOST_FIELD) for fact in facts[:_MOST_FIELDS]]))
    return {"text": _cut(f"{title}: {_escaped(announcement.text)}", _MOST_TEXT), "blocks": blocks}


def _shown(announcement: Announcement) -> list[tuple[str, object]]:
    return [(name, value) for name, value in announcement.facts.items() if value not in (None, "", [], {}, ())]


def _section(**content: Any) -> dict[str, Any]:
    return {"type": "section", **content}


def _mrkdwn(text: str, most: int) -> dict[str, str]:
    return {"type": "mrkdwn", "text": _cut(text, most)}


def _said(name: str, value: object) -> str:
    """Return the value of a fact for people: numbers with their units, times as dates."""
    plain = to_plain(value)
    if isinstance(plain, float):
        return _number(name, plain)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _number(name: str, value: float) -> str:
    if name.endswith("_at"):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if name == "mfu" or name.endswith("_mfu"):
        return f"{100 * value:.1f} %"
    if name in ("change", "gain"):
        return f"{100 * value:+.1f} %".replace("-", "−")
    return format_rate(value, "token/s") if name == "tokens_per_s" else f"{value:.4g}"


def _label(name: str) -> str:
    return "throughput" if name == "tokens_per_s" else name.replace("_", " ").replace("mfu", "MFU")


def _escaped(text: str) -> str:
    """Return the text with Slack's three control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


_PREFIX = "whsec_"
_NUM_BYTES = 32
_FEWEST_BYTES, _MOST_BYTES = 24, 64
"""The least and the largest length of a key in bytes.

Source: Standard Webhooks 1.0.0, "Signature scheme", github.com/standard-webhooks/standard-webhooks.
"""


def new_secret() -> str:
    """Return a random secret for a webhook, in the format that receivers expect: ``whsec_`` and base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_NUM_BYTES)).decode()


def check_secret(secret: str) -> None:
    """Raise an error if the text cannot be the secret of a webhook.

    Raises:
        InvalidInput: The text is not ``whsec_`` and base64, or is too short or too long. The error does not quote the
            text.
    """
    if not _FEWEST_BYTES <= len(_key(secret)) <= _MOST_BYTES:
        rule = (
            f"must be {_PREFIX} and {_FEWEST_BYTES} to {_MOST_BYTES} bytes in base64; leave it out to get a random one"
        )
        raise InvalidInput("secret", "…", rule)


def signed_headers(secret: str, message_id: str, at: float, body: bytes) -> dict[str, str]:
    """Return the headers with the signature, which proves to a receiver who posted the body, and when.

    Args:
        secret: The secret of the webhook, in the form of ``new_secret``.
        message_id: Id of the message, the same in every attempt, so that a receiver can ignore repeats.
        at: Time of the post in epoch seconds. A receiver refuses a post that is minutes old.
        body: The exact bytes that are posted.
    """
    when = str(int(at))
    signed = b".".join((message_id.encode(), when.encode(), body))
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": when,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    """Return the bytes of a key; empty if the secret does not have the required form."""
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True) if secret.startswith(_PREFIX) else b""
    except ValueError:  # from invalid base64 or from text beyond ASCII
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """Adds, tests and lists webhooks, to which outcomes are posted, and posts announcements to them."""

    store: AnnouncementStore
    poster: Poster
    clock: Clock
    allowed: tuple[Network, ...] = ()
    """Networks to which webhooks may post, beside the public internet."""
    public_url: str | None = None
    """Public address of the service, for links in messages; None: messages have no links."""

    def add(self, asked: WebhookCreate, created_by: str = "") -> Webhook:
        """Store a new webhook and return it. If the request has no secret, the webhook gets a random secret.

        From now on, outcomes such as the end of a sweep are posted to the webhook.

        Raises:
            InvalidInput: Nothing may be posted to the URL, or the secret is not legal.
            Conflict: Another webhook has its name.
        """
        check_url(asked.url, self.allowed)
        if asked.secret:
            check_secret(asked.secret)
        added = Webhook(
            name=asked.name,
            url=asked.url,
            kinds=tuple(dict.fromkeys(asked.kinds)),
            format=asked.format,
            secret=asked.secret or new_secret(),
            created_at=self.clock.now(),
            created_by=created_by,
        )
        self.store.save_webhook(added)
        return added

    def standing(self, webhook: Webhook) -> WebhookStanding:
        """Return a webhook as callers may see it: with the numbers of its deliveries, and of its URL only the host."""
        return extended(
            WebhookStanding,
            webhook,
            posts_to=origin(webhook.url),
            num_pending=self._count(webhook, DeliveryState.PENDING),
            num_dead=self._count(webhook, DeliveryState.DEAD),
        )

    def standings(self) -> list[WebhookStanding]:
        """Return all webhooks as callers may see them (see ``standing``), ordered by name."""
        return [self.standing(one) for one in self.store.list_webhooks()]

    def _count(self, webhook: Webhook, state: DeliveryState) -> int:
        return self.store.deliveries(webhook=webhook.name, state=state, page=Page(limit=1))[1]

    def test(self, name: str) -> WebhookAnswer:
        """Post a test message to a webhook now, in a single attempt, and return the answer of its receiver."""
        webhook = self.store.get_webhook(name)
        announcement = Announcement(
            id=f"test-{uuid4().hex[:10]}",
            at=self.clock.now(),
            kind=AnnouncementKind.WEBHOOK_TEST,
            title=f"Test of the webhook {name}",
            text="outcomes will be announced in a post like this one",
            path="/webhooks",
            subject_id=name,
            facts={"webhook": name},
        )
        answer = self.post(webhook, announcement)
        assert answer is not None  # no stop can be requested here
        return answer

    def post(self, webhook: Webhook, announcement: Announcement, stop: Flag | None = None) -> WebhookAnswer | None:
        """Post an announcement of an outcome to a webhook, signed with the webhook's secret, and return the answer.

        The result is None if ``stop`` was set before the answer came.
        """
        body = payload(announcement, webhook.format, self.public_url)
        headers = signed_headers(webhook.secret, announcement.id, self.clock.now(), body)
        try:
            return self.poster.post(webhook.url, body, headers, stop)
        except InvalidInput as error:  # an older release accepted this URL
            return WebhookAnswer(status=None, detail=f"not posted: {error.rule}")
