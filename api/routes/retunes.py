"""Scheduled retunings: sweeps that a schedule repeats to challenge the present layout, and their results."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from autotuner.api.dependencies import AppOf, CallerOf, Name, OwnRetuneOf
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import new_run
from autotuner.core.documents import Document
from autotuner.core.listed import Listed
from autotuner.core.sweep_requests import Adoption, RetuneCreate
from autotuner.core.upkeep import Retune, RetuneRun
from autotuner.search.upkeep.retune import TrendPoint, trend
from autotuner.store.options import Page

router = APIRouter(tags=["retunes"])

_MOST_POINTS = 500
"""Maximum number of runs in a trend: more than a year of nightly runs."""


@router.post("/retunes", status_code=201, responses=problems(400, 404, 409, 422))
def create_retune(
    request: Request, response: Response, app: AppOf, caller: CallerOf, body: Document[RetuneCreate]
) -> Document[Retune]:
    """Store a retune: a cron expression in a time zone, and the sweep that every due time starts.

    It is first due at the next due time. A run measures the incumbent until it is compared with what it reached before,
    searches, and measures the best that it finds and the incumbent by turns.
    """
    retune = app.create_retune(app.retune(body), caller)
    response.headers["Location"] = request.url_for("read_retune", name=retune.name).path
    return retune


@router.get("/retunes", responses=problems())
def list_retunes(app: AppOf) -> Document[Listed[Retune]]:
    """List all retunes: what is in use, when each is due, and how its last run ended."""
    return Listed.whole(app.store.retunes.list())


@router.get("/retunes/{name}", responses=problems(404, 422))
def read_retune(app: AppOf, name: Name) -> Document[Retune]:
    """Read a retune with all that was asked of it."""
    return app.store.retunes.get(name)


@router.delete("/retunes/{name}", responses=problems(404, 409, 422))
def remove_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Forget a retune with its runs; their sweeps stay. While a run is not finished: 409."""
    app.store.retunes.remove(retune.name)
    return retune


@router.post("/retunes/{name}/pause", responses=problems(404, 422))
def pause_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Start no run by the clock any more; one that goes on ends as it would."""
    return app.retuning.pause(retune.name)


@router.post("/retunes/{name}/resume", responses=problems(404, 422))
def resume_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Go on with the next due time; those that came meanwhile are not caught up."""
    return app.retuning.resume(retune.name)


@router.post("/retunes/{name}/adopt", responses=problems(400, 404, 409, 422))
def adopt_layout(app: AppOf, retune: OwnRetuneOf, body: Document[Adoption]) -> Document[Retune]:
    """Make another layout the incumbent: the one that is named, else the better one that the last run found.

    Where the last run found none: 409.
    """
    return app.retuning.adopt(retune.name, body.layout)


@router.post("/retunes/{name}/runs", status_code=201, responses=problems(404, 409, 422, 429))
def run_retune(
    request: Request, response: Response, app: AppOf, caller: CallerOf, retune: OwnRetuneOf
) -> Document[RetuneRun]:
    """Start a run now; when the retune is next due stays as it was. While another is not finished: 409."""
    return new_run(RetuneRun, request, response, (app.retuning.run_now(retune.name, caller), True))


@router.get("/retunes/{name}/trend", responses=problems(404, 422))
def read_retune_trend(app: AppOf, name: Name) -> Document[Listed[TrendPoint]]:
    """Read what the layout in use reached run by run, each beside the band in which noise alone lies."""
    return Listed.whole(trend(app.store.retunes.runs(name, page=Page(limit=_MOST_POINTS))[0]))
