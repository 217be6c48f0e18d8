"""Announcements, webhooks and deliveries on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.announcement import Announcement, Delivery, DeliveryState, Webhook
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.run import HeldLease
from autotuner.ports import Page
from autotuner.store import leases, records
from autotuner.store.engine import reading, writing
from autotuner.store.identity import check_name, name_taken, new_delivery_id, no_such_name
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import announcements, deliveries, webhooks

_ANNOUNCEMENT_FIELDS = [field.name for field in fields(Announcement)]
_ANNOUNCEMENTS: AnySelect = select(*(announcements.c[name] for name in _ANNOUNCEMENT_FIELDS)).select_from(announcements)
_WEBHOOKS: AnySelect = select(*(webhooks.c[field.name] for field in fields(Webhook))).select_from(webhooks)

_DELIVERY_FIELDS = [field.name for field in fields(Delivery) if field.name != "announcement"]
_DELIVERIES: AnySelect = (
    select(
        *(deliveries.c[name] for name in _DELIVERY_FIELDS),
        *(announcements.c[name].label(f"announcement_{name}") for name in _ANNOUNCEMENT_FIELDS),
    )
    .select_from(deliveries)
    .join(announcements, announcements.c.id == deliveries.c.announcement_id)
)


class SqlAnnouncements:
    """The AnnouncementStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def announce(self, announcement: Announcement) -> None:
        try:
            with writing(self._engine) as connection:
                tell(connection, announcement)
        except IntegrityError:
            raise _told_already(announcement) from None

    def feed(self, *, page: Page = Page()) -> tuple[Sequence[Announcement], int]:
        with reading(self._engine) as connection:
            rows, total = records.window(connection, select_feed(), page)
        return [Announcement(**row._mapping) for row in rows], total

    # ------------------------------------------------------------------ webhooks
    def save_webhook(self, webhook: Webhook) -> None:
        check_name("webhook.name", webhook.name)
        values = {field.name: getattr(webhook, field.name) for field in fields(Webhook)}
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(webhooks).values(values))
        except IntegrityError:
            raise name_taken("webhook", webhook.name) from None

    def get_webhook(self, name: str) -> Webhook:
        with reading(self._engine) as connection:
            row = connection.execute(_WEBHOOKS.where(webhooks.c.name == name)).one_or_none()
            if row is None:
                raise _no_such_webhook(connection, name)
        return Webhook(**row._mapping)

    def list_webhooks(self) -> Sequence[Webhook]:
        with reading(self._engine) as connection:
            rows = connection.execute(_WEBHOOKS).all()
        found = [Webhook(**row._mapping) for row in rows]
        return sorted(found, key=lambda webhook: webhook.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def remove_webhook(self, name: str) -> None:
        with writing(self._engine) as connection:
            mine = select(webhooks.c.name).where(webhooks.c.name == name).with_for_update()
            if connection.scalar(mine) is None:
                raise _no_such_webhook(connection, name)
            connection.execute(delete(deliveries).where(deliveries.c.webhook == name))
            connection.execute(delete(webhooks).where(webhooks.c.name == name))

    # ------------------------------------------------------------------ deliveries
    def held_deliveries(self) -> Sequence[HeldLease]:
        with reading(self._engine) as connection:
            return leases.DELIVERIES.held(connection)

    def claim_delivery(
        self, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease] = ()
    ) -> Delivery | None:
        with writing(self._engine) as connection:
            delivery_id = connection.scalar(select_due(now, lapsed))
            if delivery_id is None:
                return None
            attempts = deliveries.c.attempts + 1
            changed = {"owner": owner, "attempts": attempts, "next_attempt_at": now + lease_s}
            connection.execute(update(deliveries).where(deliveries.c.id == delivery_id).values(changed))
            return _get(connection, delivery_id)

    def end_delivery(self, delivery_id: str, state: DeliveryState, detail: str, *, now: float) -> Delivery | None:
        if state is DeliveryState.PENDING:
            raise InvalidInput("state", state.value, "must be an end: delivered or dead", "delivered")
        return self._change_pending(delivery_id, state=state, detail=detail, ended_at=now, next_attempt_at=None)

    def retry_delivery(self, delivery_id: str, *, next_attempt_at: float, detail: str) -> Delivery | None:
        return self._change_pending(delivery_id, next_attempt_at=next_attempt_at, detail=detail)

    def send_again(self, delivery_id: str, *, now: float) -> Delivery:
        with writing(self._engine) as connection:
            anew = {"state": DeliveryState.PENDING, "attempts": 0, "next_attempt_at": now, "ended_at": None}
            over = (deliveries.c.id == delivery_id) & (deliveries.c.state != DeliveryState.PENDING)
            if not connection.execute(update(deliveries).where(over).values(anew)).rowcount:
                _get(connection, delivery_id)
                raise Conflict(f"delivery {delivery_id} is pending already")
            return _get(connection, delivery_id)

    def deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, page: Page = Page()
    ) -> tuple[Sequence[Delivery], int]:
        with reading(self._engine) as connection:
            rows, total = records.window(connection, select_deliveries(webhook, state), page)
        return [_read(row) for row in rows], total

    def _change_pending(self, delivery_id: str, **changed: Any) -> Delivery | None:
        pending = (deliveries.c.id == delivery_id) & (deliveries.c.state == DeliveryState.PENDING)
        with writing(self._engine) as connection:
            num_changed = connection.execute(update(deliveries).where(pending).values(owner=None, **changed)).rowcount
            return _get(connection, delivery_id) if num_changed else None


# ---------------------------------------------------------------------- on a connection
def tell(connection: Connection, announcement: Announcement) -> None:
    """Store an announcement, and a delivery to each webhook that wants its kind; these stay until then."""
    known = select(announcements.c.id).where(announcements.c.id == announcement.id)
    if connection.scalar(known) is not None:
        raise _told_already(announcement)
    values = {name: getattr(announcement, name) for name in _ANNOUNCEMENT_FIELDS}
    connection.execute(insert(announcements).values(values))
    for name, kinds in connection.execute(select(webhooks.c.name, webhooks.c.kinds).with_for_update(read=True)).all():
        if not kinds or announcement.kind in kinds:
            connection.execute(insert(deliveries).values(_delivery_values(announcement, name)))


def _told_already(announcement: Announcement) -> Conflict:
    return Conflict(f"the announcement {announcement.id} is stored already")


def select_feed() -> AnySelect:
    """Rows as ``Announcement`` takes them, in the order of an index."""
    return _ANNOUNCEMENTS.order_by(announcements.c.at.desc(), announcements.c.id.desc())


def select_deliveries(webhook: str | None, state: DeliveryState | None) -> AnySelect:
    """Deliveries in the order of a list, those to one webhook, in one state or all."""
    query = _DELIVERIES if webhook is None else _DELIVERIES.where(deliveries.c.webhook == webhook)
    chosen = query if state is None else query.where(deliveries.c.state == state)
    return chosen.order_by(deliveries.c.created_at.desc(), deliveries.c.id.desc())


def select_due(now: float, lapsed: Collection[HeldLease] = ()) -> AnySelect:
    """Id of the delivery that is due longest, locked; one that another sender is claiming is passed over."""
    is_due = deliveries.c.owner.is_not(None) | (deliveries.c.next_attempt_at <= now)
    waiting = leases.DELIVERIES.is_left(lapsed) & is_due
    first = select(deliveries.c.id).where(waiting).order_by(deliveries.c.next_attempt_at, deliveries.c.id).limit(1)
    return first.with_for_update(skip_locked=True)


def _delivery_values(announcement: Announcement, webhook: str) -> dict[str, Any]:
    return {
        "id": new_delivery_id(),
        "webhook": webhook,
        "announcement_id": announcement.id,
        "state": DeliveryState.PENDING,
        "attempts": 0,
        "created_at": announcement.at,
        "next_attempt_at": announcement.at,
        "detail": "",
    }


def _get(connection: Connection, delivery_id: str) -> Delivery:
    row = connection.execute(_DELIVERIES.where(deliveries.c.id == delivery_id)).one_or_none()
    if row is None:
        raise NotFound("delivery", delivery_id)
    return _read(row)


def _read(row: AnyRow) -> Delivery:
    told = Announcement(**{name: row._mapping[f"announcement_{name}"] for name in _ANNOUNCEMENT_FIELDS})
    return Delivery(announcement=told, **{name: row._mapping[name] for name in _DELIVERY_FIELDS})


def _no_such_webhook(connection: Connection, name: str) -> NotFound:
    return no_such_name("webhook", name, connection.scalars(select(webhooks.c.name)))
