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
    """Create a retune: a cron expression with a time zone, and the sweep that runs whenever the retune is due.

    The first run starts at the next due time. A run measures the present layout until it can be compared with its
    earlier results, and searches for better layouts. It then measures the best layout found and the present layout
    alternately.
    """
    retune = app.create_retune(app.retune(body), caller)
    response.headers["Location"] = request.url_for("read_retune", name=retune.name).path
    return retune


@router.get("/retunes", responses=problems())
def list_retunes(app: AppOf) -> Document[Listed[Retune]]:
    """List all retunes, each with its present layout, its next due time, and the outcome of its last run.

    A retune measures the present layout of a job on a schedule, and searches for a better one.
    """
    return Listed.whole(app.store.retunes.list())


@router.get("/retunes/{name}", responses=problems(404, 422))
def read_retune(app: AppOf, name: Name) -> Document[Retune]:
    """Read a retune: the schedule and the sweep that were requested, the present layout, and the last run."""
    return app.store.retunes.get(name)


@router.delete("/retunes/{name}", responses=problems(404, 409, 422))
def remove_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Remove a retune (a job that is tuned again on a schedule) with its runs, but keep the sweeps of the runs.

    While a run is unfinished, this is refused with 409.
    """
    app.store.retunes.remove(retune.name)
    return retune


@router.post("/retunes/{name}/pause", responses=problems(404, 422))
def pause_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Pause a retune (a job that is tuned again on a schedule), so that its schedule starts no more runs.

    A run that is in progress continues.
    """
    return app.retuning.pause(retune.name)


@router.post("/retunes/{name}/resume", responses=problems(404, 422))
def resume_retune(app: AppOf, retune: OwnRetuneOf) -> Document[Retune]:
    """Resume a paused retune (a job that is tuned again on a schedule) at its next due time.

    Runs that were due during the pause do not take place.
    """
    return app.retuning.resume(retune.name)


@router.post("/retunes/{name}/adopt", responses=problems(400, 404, 409, 422))
def adopt_layout(app: AppOf, retune: OwnRetuneOf, body: Document[Adoption]) -> Document[Retune]:
    """Put another layout into use for a retune: the given layout, or the better layout that its last run found.

    The next runs of the retune compare other layouts with the layout in use. If no layout is given and the last run
    found no better layout, the request is refused with 409.
    """
    return app.retuning.adopt(retune.name, body.layout)


@router.post("/retunes/{name}/runs", status_code=201, responses=problems(404, 409, 422, 429))
def run_retune(
    request: Request, response: Response, app: AppOf, caller: CallerOf, retune: OwnRetuneOf
) -> Document[RetuneRun]:
    """Start a run of a retune (a job that is tuned again on a schedule) now, without changing its next due time.

    While another run of the retune is unfinished, the request is refused with 409.
    """
    return new_run(RetuneRun, request, response, (app.retuning.run_now(retune.name, caller), True))


@router.get("/retunes/{name}/trend", responses=problems(404, 422))
def read_retune_trend(app: AppOf, name: Name) -> Document[Listed[TrendPoint]]:
    """Read the results of a retune's present layout from run to run, each with the range that noise alone explains.

    A retune is a job that is tuned again on a schedule.
    """
    return Listed.whole(trend(app.store.retunes.runs(name, page=Page(limit=_MOST_POINTS))[0]))
