"""Callers and their tokens, the audit log, what needs attention, trainers, webhooks and workers, as they travel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from autotuner.core.access import MAX_NAME, AuditEntry, Quota, Scope, Token, Usage
from autotuner.core.announcement import (
    AnnouncementKind,
    Answer,
    Delivery,
    DeliveryState,
    PayloadFormat,
    Trouble,
    Webhook,
)
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import extended
from autotuner.core.run import KnownWorker
from autotuner.core.trial_spec import Trainer
from autotuner.export.registry import target_of
from autotuner.search.space.trainers import searched_by
from autotuner.search.upkeep.attention import place_of
from autotuner.service.announcing.destination import origin
from autotuner.service.build import App
from autotuner.store.announcements import AnnouncementStore
from autotuner.store.options import Page

if TYPE_CHECKING:
    from autotuner.store.access import AccessStore
    from autotuner.store.announcements import AnnouncementStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreate:
    """Who or what shall be let in.

    Attributes:
        name: Of the person or program; a name may have several tokens, and owns what they make.
        scope: What they may do; each holds what stands before it: `read`, `run`, `admin`.
        quota: How much they may take; left out, as much as there is.
        expires_at: Epoch seconds; left out, never.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    scope: Scope = Scope.RUN
    quota: Quota = field(default_factory=Quota)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated:
    """A new token, and what to give to whom it is for.

    Attributes:
        text: What they show: `Authorization: Bearer` and this. It is kept nowhere and not shown again.
    """

    token: Token
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenList:
    """Tokens by name, then newest first; those that were taken back or are expired too."""

    items: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerView:
    """Who the service takes you for.

    Attributes:
        name: What you make belongs to it; empty where the service asks nobody.
        scope: What you may do.
        token_id: Of the token that let you in, also through a session; null: a proxy did, or nobody was asked.
        usage: What you take of your quota now; of accelerator-hours, in the last 24 hours.
    """

    name: str
    scope: Scope
    quota: Quota
    token_id: str | None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Entries of the audit log, newest first.

    Attributes:
        total: How many there are in all.
    """

    items: tuple[AuditEntry, ...]
    total: int
    limit: int
    offset: int

    @classmethod
    def of(cls, store: AccessStore, caller: str | None, page: Page) -> Self:
        """Those of one page, of one caller or all."""
        items, total = store.audit(caller=caller, page=page)
        return cls(items=tuple(items), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleView(Trouble):
    """Something that went wrong and that nobody has mended yet.

    Attributes:
        path: Of the page where somebody goes on with it, below the service's address.
    """

    path: str

    @classmethod
    def of(cls, trouble: Trouble) -> TroubleView:
        """The trouble with its place."""
        return extended(cls, trouble, path=place_of(trouble))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionList:
    """Everything that needs somebody, the worst kind first and the newest of each; no more than 20 of a kind."""

    items: tuple[TroubleView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """What needs somebody by now."""
        found = app.store.health.attention(now=app.clock.now())
        return cls(items=tuple(TroubleView.of(trouble) for trouble in found))


# Trainers that an operator registered: what a sweep may ask of each, and nothing of how it is started.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """A registered trainer.

    Attributes:
        name: What a sweep says as its `trainer`.
        format: What a layout is written as for it.
        version: Release of the format's words.
        stack: Name of the software that predictions of its sweeps are for.
        options: Fields of a layout that a sweep of it may search.
        fixed: What its own code decides, by field; every field that stands in neither list is at its default.
        values: The values that it knows of some options, by field; it knows all of the others.
    """

    name: str
    format: ExportFormat
    version: str
    stack: str
    options: tuple[str, ...]
    fixed: dict[str, object]
    values: dict[str, tuple[object, ...]]

    @classmethod
    def of(cls, trainer: Trainer) -> Self:
        """What a caller may know of the trainer."""
        target = target_of(trainer.format)
        return cls(
            name=trainer.name,
            format=trainer.format,
            version=target.version,
            stack=trainer.stack,
            options=searched_by(trainer, target),
            fixed=dict(trainer.fixed),
            values=dict(trainer.values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerList:
    """Registered trainers, in their operator's order."""

    items: tuple[TrainerView, ...]

    @classmethod
    def of(cls, trainers: Iterable[Trainer]) -> Self:
        """All of them."""
        return cls(items=tuple(TrainerView.of(trainer) for trainer in trainers))


# Webhooks and deliveries, as they travel: a webhook's secret is shown once, and of its URL the host alone.

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
        return extended(
            cls,
            webhook,
            posts_to=origin(webhook.url),
            num_pending=_count(store, webhook.name, DeliveryState.PENDING),
            num_dead=_count(store, webhook.name, DeliveryState.DEAD),
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


# Workers as they are shown.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A process that runs sweeps.

    Attributes:
        name: What it calls itself.
        version: Its release.
        started_at: Epoch seconds.
        seen_at: When it last told that it lives, epoch seconds of its own clock; it does so every ten seconds.
        is_alive: Whether that was within a minute.
        sweep_id: The sweep that it runs; null: it waits for one.
    """

    name: str
    version: str
    started_at: float
    seen_at: float
    is_alive: bool
    sweep_id: str | None

    @classmethod
    def of(cls, worker: KnownWorker, now: float, sweep_id: str | None) -> Self:
        """The worker as it is seen now."""
        return extended(cls, worker, is_alive=worker.is_alive(now), sweep_id=sweep_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """Workers that told of themselves within a day and were not stopped in good order, the last to do so first."""

    items: tuple[WorkerView, ...]

    @classmethod
    def of(cls, app: App) -> Self:
        """All of them, with what they hold."""
        now = app.clock.now()
        running = {lease.owner: lease.run_id for lease in app.store.runs.leases(["sweep"])}
        workers = app.store.health.workers()
        return cls(items=tuple(WorkerView.of(worker, now, running.get(worker.name)) for worker in workers))
