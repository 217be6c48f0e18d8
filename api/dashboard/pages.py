"""The pages: all sweeps, one sweep, one trial; each also answers with its live part alone, for the script to use."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.staticfiles import StaticFiles

from api.dashboard import (
    audit_pages,
    calibration_pages,
    cluster_pages,
    gate_pages,
    login_pages,
    retune_pages,
    webhook_pages,
)
from api.dashboard.render import STATIC, page
from api.dashboard.scatter import scatter
from api.dashboard.words import engine, source
from api.dependencies import AppOf, SweepOf, TrialId
from api.documents import MAX_INTEGER
from api.edge.needs import CHECKS
from api.schemas import LayoutExplanation, RankingPage, SweepDetail, SweepPage, SweepRules, TrialDetail, TrialView
from autotuner.bootstrap import App
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.domain.runs.trial import Trial, TrialState
from autotuner.errors import InvalidInput
from autotuner.export.registry import TARGETS, export
from autotuner.ports import Page
from autotuner.search.sweeps.history import all_trials
from autotuner.search.text.sentences import EMULATED

__all__ = ["add_dashboard"]

_router = APIRouter(include_in_schema=False, default_response_class=Response)

_MODULES = (cluster_pages, calibration_pages, retune_pages, gate_pages, webhook_pages, audit_pages, login_pages)

_SWEEPS_PER_PAGE = 50
_RANKS_SHOWN = 100

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _SWEEPS_PER_PAGE)]
"""Further pages begin behind more sweeps than a database can count."""

_Part = Annotated[Literal["live"] | None, Query()]

_Format = Annotated[ExportFormat | None, Query(alias="format")]


def add_dashboard(api: FastAPI) -> None:
    """Serve the pages at ``/`` and what they load at ``/static``."""
    for router in (_router, *(module.router for module in _MODULES)):
        api.include_router(router, dependencies=CHECKS)
    api.mount("/static", StaticFiles(directory=STATIC), name="static")


@_router.get("/")
def sweeps_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """All sweeps, newest first."""
    window = Page(limit=_SWEEPS_PER_PAGE, offset=(number - 1) * _SWEEPS_PER_PAGE)
    sweeps = SweepPage.of(app.store, None, window, app.clock.now())
    return page(
        request,
        "_sweeps.html" if part else "sweeps.html",
        sweeps=sweeps.items,
        total=sweeps.total,
        number=number,
        is_last=window.offset + window.limit >= sweeps.total,
        service=str(request.base_url).rstrip("/"),
    )


@_router.get("/sweeps/{sweep_id}")
def sweep_page(request: Request, app: AppOf, sweep: SweepOf, part: _Part = None) -> Response:
    """One sweep: where it stands, its ranking, what runs and what failed."""
    window = Page(limit=_RANKS_SHOWN)
    stored = list(all_trials(app.store, sweep.id))
    ranking = RankingPage.of_all(app.store, sweep.id, stored, window)
    views = {trial.id: TrialView.of(trial) for trial in stored}
    running = [TrialDetail.of(app.store.get_trial(t.id)) for t in stored if t.state is TrialState.RUNNING]
    return page(
        request,
        "_sweep.html" if part else "sweep.html",
        sweep=SweepDetail.of_sweep(app, sweep),
        ranking=ranking.items,
        num_ranked=ranking.total,
        running=running,
        noun=sweep.request.objective.noun,
        emulated=EMULATED,
        queued=[views[t.id] for t in stored if t.state is TrialState.QUEUED],
        ended=[TrialDetail.of(t) for t in stored if t.state.finished and not t.is_ranked and not _told_apart(t)],
        repeats=[views[t.id] for t in stored if _told_apart(t)],
        scatter=scatter([views[t.id] for t in stored if not t.layout.is_emulated and t.repeats is None]),
        rules=[rule for rule in SweepRules.of(stored).items if rule.num_pairs],
        source=source(sweep.request),
        engine=engine(sweep.request.runs_on.engine, sweep.request.runs_on.queue),
        now=app.clock.now(),
    )


@_router.get("/trials/{trial_id}")
def trial_page(request: Request, app: AppOf, trial_id: TrialId, part: _Part = None, wanted: _Format = None) -> Response:
    """One trial: predicted beside measured, where its time and memory go, what lies one step away, and its export."""
    trial = app.store.get_trial(trial_id)
    sweep = app.store.get_sweep(trial.sweep_id)
    return page(
        request,
        "_trial.html" if part else "trial.html",
        sweep=sweep,
        trial=TrialDetail.of(trial),
        emulated=EMULATED if trial.layout.is_emulated else "",
        explanation=_explanation(app, trial),
        formats=[one for one in ExportFormat if one in TARGETS],
        export=None if wanted is None else export(sweep.request.job, trial.layout, wanted),
        source=source(sweep.request),
        engine=engine(sweep.request.runs_on.engine, sweep.request.runs_on.queue),
        now=app.clock.now(),
    )


def _told_apart(trial: Trial) -> bool:
    """Whether it is listed with what it is compared with, and not among those that ended without a rank."""
    return trial.repeats is not None and trial.measurement is not None


def _explanation(app: App, trial: Trial) -> LayoutExplanation | None:
    """None where a rule that is younger than the trial forbids its layout."""
    try:
        return LayoutExplanation.of_trial(app, trial)
    except InvalidInput:
        return None
