"""The first page: all sweeps, newest first."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.documents import MAX_INTEGER
from api.schemas import SweepPage
from autotuner.ports import ALL_SWEEPS, NEWEST_FIRST, Page

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)

_SWEEPS_PER_PAGE = 50

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _SWEEPS_PER_PAGE)]
"""Further pages begin behind more sweeps than a database can count."""

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/")
def sweeps_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """All sweeps, newest first."""
    window = Page(limit=_SWEEPS_PER_PAGE, offset=(number - 1) * _SWEEPS_PER_PAGE)
    sweeps = SweepPage.of(app.store, ALL_SWEEPS, NEWEST_FIRST, window, app.clock.now())
    return page(
        request,
        "_sweeps.html" if part else "sweeps.html",
        sweeps=sweeps.items,
        total=sweeps.total,
        number=number,
        is_last=window.offset + window.limit >= sweeps.total,
        service=str(request.base_url).rstrip("/"),
    )
