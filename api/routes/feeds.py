"""The feed of outcomes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from api.dependencies import AppOf, PageOf
from api.feeds import ATOM, JSON_FEED, Feed
from api.openapi import problems
from autotuner.ports import Page
from autotuner.service.build import App

router = APIRouter(tags=["webhooks and feed"])

_JSON: dict[str, Any] = {"content": {JSON_FEED: {"schema": {"type": "object"}}}}
_ATOM: dict[str, Any] = {"content": {ATOM: {"schema": {"type": "string"}}}}


@router.get("/feed.json", response_class=Response, responses={200: _JSON, **problems(422)})
def json_feed(request: Request, app: AppOf, page: PageOf) -> Response:
    """Read what was announced, newest first, as a JSON Feed (1.1); `next_url` leads to what is older."""
    return Response(_feed(request, app, page, "json_feed").as_json(), media_type=JSON_FEED)


@router.get("/feed.atom", response_class=Response, responses={200: _ATOM, **problems(422)})
def atom_feed(request: Request, app: AppOf, page: PageOf) -> Response:
    """Read what was announced, newest first, as an Atom feed (RFC 4287)."""
    return Response(_feed(request, app, page, "atom_feed").as_atom(), media_type=ATOM)


def _feed(request: Request, app: App, page: Page, route: str) -> Feed:
    announcements, total = app.store.announcements.feed(page=page)
    home = app.settings.public_url or str(request.base_url)
    path = f"{home.rstrip('/')}{request.app.url_path_for(route)}"
    seen = page.offset + len(announcements)
    return Feed(
        announcements=announcements,
        home=home,
        url=_with(path, page.limit, page.offset),
        next_url=_with(path, page.limit, seen) if announcements and seen < total else None,
        now=app.clock.now(),
    )


def _with(path: str, limit: int, offset: int) -> str:
    """The address of a page; the first has the plain one where nobody asked for another length."""
    asked = {"limit": limit, "offset": offset}
    return path if asked == {"limit": 50, "offset": 0} else f"{path}?limit={limit}&offset={offset}"
