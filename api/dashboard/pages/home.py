"""The first page, with all sweeps and what needs attention, and the page of a search over everything."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from api.dashboard.render import page, service_of
from api.dashboard.views.finding import Finding, exact_place, find
from api.dependencies import AppOf, SweepOrderOf
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.run import RunState
from autotuner.report.layouts import shared_chips
from autotuner.report.sweep_list import Asked, sweep_list_report
from autotuner.store.options import Page, SweepFilter

# The first page: what needs attention, and all sweeps, searched, filtered and ordered as the address says.

router = APIRouter(include_in_schema=False, default_response_class=Response)

_SWEEPS_PER_PAGE = 50

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _SWEEPS_PER_PAGE)]
"""Further pages begin behind more sweeps than a database can count."""

_Part = Annotated[Literal["live"] | None, Query()]
_Text = Annotated[str, Query(max_length=200)]
_State = Annotated[RunState | Literal[""], Query()]
"""A form sends what is left empty, too."""


@router.get("/")
def sweeps_page(
    request: Request,
    app: AppOf,
    order: SweepOrderOf,
    q: _Text = "",
    state: _State = "",
    owner: _Text = "",
    part: _Part = None,
    number: _Number = 1,
) -> Response:
    """What needs attention, and the sweeps that match."""
    asked = Asked(where=SweepFilter(text=q, state=state or None, owner=owner or None), order=order, number=number)
    now = app.clock.now()
    window = Page(limit=_SWEEPS_PER_PAGE, offset=(number - 1) * _SWEEPS_PER_PAGE)
    found, total = app.store.list_overviews(now=now, where=asked.where, order=order, page=window)
    troubles = app.store.health.attention(now=now)
    return page(
        request,
        "_home.html" if part else "home.html",
        report=sweep_list_report(found, total, asked, _SWEEPS_PER_PAGE, troubles, now),
        listed=asked,
        is_empty=not total and not asked.without and number == 1,
        live=urlencode({**asked.query(), "part": "live"}),
        states=list(RunState),
        owners=app.store.sweep_owners(),
        service=service_of(request),
    )


# The page of a search over everything: sweeps, trials and layouts.


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
