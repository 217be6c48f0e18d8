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
from autotuner.service.build import App
from autotuner.service.posting import origin
from autotuner.store.announcements import AnnouncementStore
from autotuner.store.options import Page

if TYPE_CHECKING:
    from autotuner.store.access import AccessStore
    from autotuner.store.announcements import AnnouncementStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreate:
    """Who or what shall be let in."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Of the person or program; a name may have several tokens, and owns what they make."""
    scope: Scope = Scope.RUN
    """What they may do; each holds what stands before it: `read`, `run`, `admin`."""
    quota: Quota = field(default_factory=Quota)
    """How much they may take; left out, as much as there is."""
    expires_at: float | None = None
    """Epoch seconds; left out, never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated:
    """A new token, and what to give to whom it is for."""

    token: Token
    text: str
    """What they show: `Authorization: Bearer` and this. It is kept nowhere and not shown again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenList:
    """Tokens by name, then newest first; those that were taken back or are expired too."""

    items: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerView:
    """Who the service takes you for."""

    name: str
    """What you make belongs to it; empty where the service asks nobody."""
    scope: Scope
    """What you may do."""
    quota: Quota
    token_id: str | None
    """Of the token that let you in, also through a session; null: a proxy did, or nobody was asked."""
    usage: Usage
    """What you take of your quota now; of accelerator-hours, in the last 24 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Entries of the audit log, newest first."""

    items: tuple[AuditEntry, ...]
    total: int
    """How many there are in all."""
    limit: int
    offset: int

    @classmethod
    def of(cls, store: AccessStore, caller: str | None, page: Page) -> Self:
        """Those of one page, of one caller or all."""
        items, total = store.audit(caller=caller, page=page)
        return cls(items=tuple(items), total=total, limit=page.limit, offset=page.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleView(Trouble):
    """Something that went wrong and that nobody has mended yet."""

    path: str
    """Of the page where somebody goes on with it, below the service's address."""

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
    """A registered trainer."""

    name: str
    """What a sweep says as its `trainer`."""
    format: ExportFormat
    """What a layout is written as for it."""
    version: str
    """Release of the format's words."""
    stack: str
    """Name of the software that predictions of its sweeps are for."""
    options: tuple[str, ...]
    """Fields of a layout that a sweep of it may search."""
    fixed: dict[str, object]
    """What its own code decides, by field; every field that stands in neither list is at its default."""
    values: dict[str, tuple[object, ...]]
    """The values that it knows of some options, by field; it knows all of the others."""

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
    """Where announcements shall go."""

    name: Annotated[str, Field(pattern=_NAME)]
    """Of the webhook, unique."""
    url: str
    """What is posted to."""
    kinds: tuple[AnnouncementKind, ...] = ()
    """What it wants; empty: everything."""
    format: PayloadFormat = PayloadFormat.JSON
    """`json` for programs, `slack` for an incoming webhook of Slack or of what understands its messages."""
    secret: str | None = None
    """Key of the signature, `whsec_` and base64; left out, one is made."""

    def webhook(self) -> Webhook:
        """What is to be stored, its secret still to be made where none was given."""
        kinds = tuple(dict.fromkeys(self.kinds))
        return Webhook(name=self.name, url=self.url, kinds=kinds, format=self.format, secret=self.secret or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook, without what only its receiver may know."""

    name: str
    posts_to: str
    """Scheme and host of its URL; the rest is often a credential."""
    kinds: tuple[AnnouncementKind, ...]
    """What it wants; empty: everything."""
    format: PayloadFormat
    created_at: float
    num_pending: int
    """Deliveries that are still to be made."""
    num_dead: int
    """Deliveries that were given up."""
    created_by: str = ""
    """Name of the caller who added it; empty where nobody was asked who they are."""

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
    """A new webhook."""

    webhook: WebhookView
    secret: str
    """Key of its signatures, for the receiver; never shown again."""


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
    """What became of a test."""

    accepted: bool
    """The receiver answered with a status of 200 to 299."""
    status: int | None
    """Of HTTP; null where no answer came."""
    detail: str
    """What was answered, or why nothing was."""

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """The answer, as it is told."""
        return cls(accepted=answer.is_accepted, status=answer.status, detail=answer.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """Deliveries, newest first."""

    items: tuple[Delivery, ...]
    total: int
    """How many there are in all."""
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
    """A process that runs sweeps."""

    name: str
    """What it calls itself."""
    version: str
    """Its release."""
    started_at: float
    """Epoch seconds."""
    seen_at: float
    """When it last told that it lives, epoch seconds of its own clock; it does so every ten seconds."""
    is_alive: bool
    """Whether that was within a minute."""
    sweep_id: str | None
    """The sweep that it runs; null: it waits for one."""

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
