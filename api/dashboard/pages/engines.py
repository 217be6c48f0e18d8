"""The page of engines and workers: what trials run on, whether it answers, and who runs sweeps."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.schemas import WorkerList

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/engines")
def engines_page(request: Request, app: AppOf) -> Response:
    """What each engine answers just now, which may take it seconds, and every worker that told of itself."""
    clusters = app.store.list_clusters()
    engines = app.engine_standings()
    used = {engine.name: [one.name for one in clusters if one.engine == engine.name] for engine in engines}
    return page(
        request,
        "engines.html",
        engines=engines,
        used=used,
        workers=WorkerList.of(app).items,
        now=app.clock.now(),
    )
