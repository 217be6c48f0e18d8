"""Announcements, webhooks and deliveries on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from autotuner.core.announcement import Announcement, Delivery, DeliveryProgress, DeliveryState, Webhook
from autotuner.core.errors import Conflict
from autotuner.core.run import OPEN, NewRun, Run, RunState
from autotuner.store.descriptions import check_name, name_taken, new_id
from autotuner.store.engine import AnySelect, one_row, reading, select_values, values_of, window, writing
from autotuner.store.options import Page
from autotuner.store.runs import Part, insert_run
from autotuner.store.tables import announcements, runs, webhooks

_WEBHOOKS, _NAMES = select_values(webhooks, Webhook), select(webhooks.c.name)

_STATES = {
    DeliveryState.PENDING: OPEN,
    DeliveryState.DELIVERED: (RunState.COMPLETE,),
    DeliveryState.DEAD: (RunState.FAILED, RunState.CANCELLED),
}
"""States of the runs that deliver announcements, by the delivery state that users see."""


class AnnouncementStore(Part):
    """The store of announcements (messages about outcomes), of webhooks, and of deliveries to them.

    An announcement is stored in the same transaction as the outcome that it reports. That transaction also queues one
    delivery (a ``Run``) for each webhook that is subscribed to announcements of this kind at that moment.
    """

    def feed(self, *, page: Page = Page()) -> tuple[Sequence[Announcement], int]:
        """Return one page of the feed of announcements, newest first, and the total number of announcements.

        An announcement is a message about an outcome, such as the end of a sweep.
        """
        with reading(self._engine) as connection:
            rows, total = window(connection, select_feed(), page)
        return [Announcement(**row._mapping) for row in rows], total

    # ------------------------------------------------------------------ webhooks
    def save_webhook(self, webhook: Webhook) -> None:
        """Store a new webhook (a URL to post outcomes to); raise ``Conflict`` if another webhook has its name."""
        check_name("webhook.name", webhook.name)
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(webhooks).values(values_of(webhook)))
        except IntegrityError:
            raise name_taken("webhook", webhook.name) from None

    def get_webhook(self, name: str) -> Webhook:
        """Return the webhook (a URL to which outcomes are posted) of that name.

        If there is none, ``NotFound`` suggests the most similar name.
        """
        with reading(self._engine) as connection:
            row = one_row(connection, _WEBHOOKS.where(webhooks.c.name == name), "webhook", name, _NAMES)
        return Webhook(**row._mapping)

    def list_webhooks(self) -> Sequence[Webhook]:
        """Return all webhooks (URLs to which outcomes are posted), ordered by name."""
        with reading(self._engine) as connection:
            rows = connection.execute(_WEBHOOKS).all()
        found = [Webhook(**row._mapping) for row in rows]
        return sorted(found, key=lambda webhook: webhook.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def remove_webhook(self, name: str) -> None:
        """Delete the webhook of that name, together with its deliveries; raise ``NotFound`` if it is not stored."""
        with writing(self._engine) as connection:
            one_row(connection, _NAMES.where(webhooks.c.name == name).with_for_update(), "webhook", name, _NAMES)
            connection.execute(delete(runs).where(runs.c.kind == "delivery", runs.c.subject == name))
            connection.execute(delete(webhooks).where(webhooks.c.name == name))

    # ------------------------------------------------------------------ deliveries
    def send_again(self, delivery_id: str, *, now: float) -> Delivery:
        """Queue a finished delivery (the post of an outcome to a webhook) again; its attempts are counted from 0.

        It is due now. Raise ``Conflict`` if the delivery has not finished.
        """
        if not self._runs.get("delivery", delivery_id).state.is_finished:
            raise Conflict(f"delivery {delivery_id} is already pending; wait until it ends")
        return _delivery(self._runs.reopen("delivery", delivery_id, DeliveryProgress(), now=now))

    def deliveries(
        self, *, webhook: str | None = None, state: DeliveryState | None = None, page: Page = Page()
    ) -> tuple[Sequence[Delivery], int]:
        """Return one page of webhook deliveries, newest first, and the total number of deliveries that match.

        Args:
            webhook: Name of a webhook, whose deliveries are returned; None: deliveries to all webhooks.
            state: State of the deliveries to return; None: any state.
            page: Which part of the list to return.
        """
        found, total = self._runs.list("delivery", subject=webhook, states=_STATES[state] if state else (), page=page)
        return [_delivery(run) for run in found], total


# ---------------------------------------------------------------------- on a connection
def tell(connection: Connection, announcement: Announcement) -> None:
    """Store an announcement of an outcome, and queue its delivery to each webhook that is subscribed to its kind.

    The subscribed webhooks cannot be removed before the transaction ends.
    """
    known = select(announcements.c.id).where(announcements.c.id == announcement.id)
    if connection.scalar(known) is not None:
        raise Conflict(f"the announcement {announcement.id} is already stored")
    connection.execute(insert(announcements).values(values_of(announcement)))
    for name, kinds in connection.execute(select(webhooks.c.name, webhooks.c.kinds).with_for_update(read=True)).all():
        if not kinds or announcement.kind in kinds:
            new = NewRun(
                id=new_id("dl"),
                kind="delivery",
                request=announcement,
                progress=DeliveryProgress(),
                subject=name,
                parent_id=announcement.id,
                unique_key=f"{name} {announcement.id}",
            )
            insert_run(connection, new, announcement.at)


def select_feed() -> AnySelect:
    """Return the query for the feed of announcements (messages about outcomes), newest first.

    Its columns are the fields of ``Announcement``.
    """
    return select_values(announcements, Announcement).order_by(announcements.c.at.desc(), announcements.c.id.desc())


def deliveries_of(announcement_ids: Collection[str]) -> ColumnElement[bool]:
    """Return the SQL condition on ``runs`` that selects the deliveries of the announcements with these ids."""
    return (runs.c.kind == "delivery") & runs.c.parent_id.in_(announcement_ids)


def _delivery(run: Run) -> Delivery:
    is_open = run.state in OPEN
    return Delivery(
        id=run.id,
        webhook=run.subject,
        announcement=run.request,
        state=next(state for state, states in _STATES.items() if run.state in states),
        attempts=run.progress.num_attempts,
        created_at=run.created_at,
        next_attempt_at=run.due_at if is_open else None,
        ended_at=run.finished_at,
        detail=run.detail,
    )
