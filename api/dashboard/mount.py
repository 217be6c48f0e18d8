"""Adds the dashboard to the service: every page, and the files that pages load."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.staticfiles import StaticFiles

from autotuner.api.dashboard.pages import (
    clusters,
    compare,
    documentation,
    explore,
    home,
    login,
    new_sweep,
    optimizer_studies,
    questions,
    service,
    sweep,
    trial,
    upkeep,
)
from autotuner.api.dashboard.render import STATIC
from autotuner.api.dashboard.style import style_sheet
from autotuner.api.edge.auth import CHECKS, OPEN

_PAGES = (
    *(home, sweep, trial),
    *(new_sweep, questions, explore, compare),
    *(optimizer_studies, upkeep, clusters, service, login, documentation),
)

_styles = APIRouter(include_in_schema=False)

_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@_styles.get("/static/style.css", openapi_extra=OPEN)
async def styles() -> Response:
    """Answer with the dashboard's style sheet; its address contains a hash of its text.

    Browsers may therefore keep it for ever: a changed sheet has another address.
    """
    return Response(style_sheet(), media_type="text/css", headers=_FOR_EVER)


def include_dashboard(router: APIRouter) -> None:
    """Add the pages of the dashboard at ``/`` and their static files at ``/static`` to a router."""
    for module in _PAGES:
        router.include_router(module.router, dependencies=CHECKS)
    router.include_router(_styles, dependencies=CHECKS)
    router.mount("/static", StaticFiles(directory=STATIC), name="static")
