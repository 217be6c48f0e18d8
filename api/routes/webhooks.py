"""Webhooks: where outcomes are announced, and how each delivery stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.dependencies import AppOf, CallerOf, Name, PageOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import DeliveryPage, WebhookCreate, WebhookCreated, WebhookList, WebhookTest, WebhookView
from autotuner.core.access import Scope
from autotuner.core.announcement import Delivery, DeliveryState
from autotuner.core.documents import Document

router = APIRouter(tags=["webhooks and feed"])

_DeliveryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["dl-4f9c2kq7xz"])]
_WebhookOf = Annotated[
    str | None, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$", description="Only deliveries to this one.")
]
_StateOf = Annotated[DeliveryState | None, Query(description="Only deliveries in this state.")]


@router.post("/webhooks", status_code=201, responses=problems(400, 409, 422), openapi_extra=needs(Scope.ADMIN))
def create_webhook(
    request: Request, response: Response, app: AppOf, caller: CallerOf, body: Document[WebhookCreate]
) -> Document[WebhookCreated]:
    """Have outcomes posted to a URL from now on, signed after the Standard Webhooks scheme.

    The answer has the secret of the signatures, which no other answer shows. The URL is one of https and leads into
    the public internet, unless the operator allows other networks.
    """
    added = app.webhooks.add(replace(body.webhook(), created_by=caller.name))
    response.headers["Location"] = request.url_for("read_webhook", name=added.name).path
    return WebhookCreated(webhook=WebhookView.of(added, app.store.announcements), secret=added.secret)


@router.get("/webhooks", responses=problems())
def list_webhooks(app: AppOf) -> Document[WebhookList]:
    """List the webhooks with how many deliveries wait and how many were given up."""
    return WebhookList.of(app.store.announcements)


@router.get("/webhooks/{name}", responses=problems(404, 422))
def read_webhook(app: AppOf, name: Name) -> Document[WebhookView]:
    """Read a webhook; its secret and what follows the host of its URL are not shown."""
    return WebhookView.of(app.store.announcements.get_webhook(name), app.store.announcements)


@router.delete("/webhooks/{name}", responses=problems(404, 422), openapi_extra=needs(Scope.ADMIN))
def remove_webhook(app: AppOf, name: Name) -> Document[WebhookView]:
    """Forget a webhook with its deliveries, those that wait too."""
    removed = WebhookView.of(app.store.announcements.get_webhook(name), app.store.announcements)
    app.store.announcements.remove_webhook(name)
    return removed


@router.post("/webhooks/{name}/test", responses=problems(404, 422), openapi_extra=needs(Scope.ADMIN))
def test_webhook(app: AppOf, name: Name) -> Document[WebhookTest]:
    """Post a test to a webhook now, once, and answer with what became of it."""
    return WebhookTest.of(app.webhooks.test(name))


@router.get("/deliveries", responses=problems(404, 422))
def list_deliveries(
    app: AppOf, page: PageOf, webhook: _WebhookOf = None, state: _StateOf = None
) -> Document[DeliveryPage]:
    """List deliveries, newest first; those in the state `dead` were given up and wait to be sent again by hand."""
    return DeliveryPage.of(app.store.announcements, webhook, state, page)


@router.post(
    "/deliveries/{delivery_id}/send-again", responses=problems(404, 409, 422), openapi_extra=needs(Scope.ADMIN)
)
def send_again(app: AppOf, delivery_id: _DeliveryId) -> Document[Delivery]:
    """Make a delivery anew, whether it arrived or was given up; one that is still pending is refused with 409."""
    return app.store.announcements.send_again(delivery_id, now=app.clock.now())
