"""The page of a search over everything: sweeps, trials and layouts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from api.dashboard.render import page
from api.dashboard.views.finding import Finding, exact_place, find
from api.dashboard.views.layouts import shared_chips
from api.dependencies import AppOf

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/find")
def find_page(request: Request, app: AppOf, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    """What the words may mean; what has them as its id is gone to at once."""
    if q.strip() and (place := exact_place(app.store, q)):
        return RedirectResponse(f"{request.scope.get('root_path', '')}{place}", HTTPStatus.SEE_OTHER)
    found = find(app.store, q, now=app.clock.now()) if q.strip() else None
    return page(request, "find.html", asked=q, found=found, shared=_shared(found))


def _shared(found: Finding | None) -> tuple[str, ...]:
    """Chips that all trials have, to be said once."""
    return shared_chips(one.trial.layout for one in (*found.numbered, *found.alike)) if found else ()
