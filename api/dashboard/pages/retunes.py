"""The pages of retunes: all of them, and one with its trend and its runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.trend import trend_chart
from api.dashboard.render import page
from api.dashboard.views.nights import weeks
from api.dashboard.words import source
from api.dependencies import AppOf, Name
from api.schemas import RetuneDetail, RetuneList
from autotuner.ports import Page
from autotuner.search.upkeep.retunes.trend import trend

router = APIRouter(include_in_schema=False, default_response_class=Response)

_RUNS_SHOWN = 50
_RUNS_READ = 120
"""Enough for the trend, where some nights measured nothing."""

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
    retune = app.store.retunes.get(name)
    runs, total = app.store.retunes.runs(name, page=Page(limit=_RUNS_READ))
    return page(
        request,
        "_retune.html" if part else "retune.html",
        retune=RetuneDetail.of_retune(app.store, retune),
        source=source(retune.request.template),
        runs=runs[:_RUNS_SHOWN],
        total=total,
        chart=trend_chart(trend(runs)),
        weeks=weeks(runs),
        service=str(request.base_url).rstrip("/"),
    )
