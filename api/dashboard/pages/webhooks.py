"""The page of webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.schemas import DeliveryPage, WebhookList
from autotuner.core.announcement import DeliveryState
from autotuner.core.documents import MAX_INTEGER
from autotuner.ports import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_DELIVERIES_PER_PAGE = 25

_Part = Annotated[Literal["live"] | None, Query()]
_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _DELIVERIES_PER_PAGE)]


@router.get("/webhooks")
def webhooks_page(
    request: Request, app: AppOf, part: _Part = None, state: DeliveryState | None = None, number: _Number = 1
) -> Response:
    """All webhooks, and their deliveries, newest first."""
    window = Page(limit=_DELIVERIES_PER_PAGE, offset=(number - 1) * _DELIVERIES_PER_PAGE)
    found = DeliveryPage.of(app.store.announcements, None, state, window)
    return page(
        request,
        "_webhooks.html" if part else "webhooks.html",
        webhooks=WebhookList.of(app.store.announcements).items,
        deliveries=found.items,
        total=found.total,
        state=state.value if state else "",
        number=number,
        is_last=window.offset + window.limit >= found.total,
        service=str(request.base_url).rstrip("/"),
    )
