"""The pages of retunes: all of them, and one with its trend and its runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.trend_chart import trend_chart
from api.dashboard.words import source
from api.dependencies import AppOf, Name
from api.schemas import RetuneDetail, RetuneList, RetuneRunPage, RetuneTrend
from autotuner.ports import Page

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)

_RUNS_SHOWN = 50

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/retunes")
def retunes_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """All retunes by name: when each is due, and how its last run ended."""
    return page(
        request,
        "_retunes.html" if part else "retunes.html",
        retunes=RetuneList.of(app.store).items,
        sources={one.name: source(one.request.template) for one in app.store.retunes.list()},
        service=str(request.base_url).rstrip("/"),
    )


@router.get("/retunes/{name}")
def retune_page(request: Request, app: AppOf, name: Name, part: _Part = None) -> Response:
    """One retune: how its last run ended, what the layout in use reached run by run, and all runs."""
    runs = RetuneRunPage.of(app.store, name, Page(limit=_RUNS_SHOWN))
    retune = app.store.retunes.get(name)
    return page(
        request,
        "_retune.html" if part else "retune.html",
        retune=RetuneDetail.of_retune(app.store, retune),
        source=source(retune.request.template),
        runs=runs.items,
        total=runs.total,
        chart=trend_chart(RetuneTrend.of(app.store, name).items),
        service=str(request.base_url).rstrip("/"),
    )
