"""The first page, with all sweeps and what needs attention, and the page of a search over everything."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from api.dashboard.render import page
from api.dashboard.views.finding import Finding, exact_place, find
from api.dashboard.views.sweep_list import Asked, SweepList, attention_lines
from api.dependencies import AppOf, SweepOrderOf
from api.schemas.sweeps import SweepPage
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.run import RunState
from autotuner.report.layouts import shared_chips
from autotuner.service.build import App
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
    return page(
        request,
        "home/_home.html" if part else "home/home.html",
        lines=attention_lines(app.store.health.attention(now=now), now),
        sweeps=_sweeps(app, asked, now),
        states=list(RunState),
        owners=app.store.sweep_owners(),
        service=str(request.base_url).rstrip("/"),
    )


def _sweeps(app: App, asked: Asked, now: float) -> SweepList:
    window = Page(limit=_SWEEPS_PER_PAGE, offset=(asked.number - 1) * _SWEEPS_PER_PAGE)
    return SweepList.of(SweepPage.of(app.store, asked.where, asked.order, window, now), asked, now)


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
