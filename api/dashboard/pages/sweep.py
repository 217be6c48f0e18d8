"""The page of one sweep."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.scatter import scatter
from api.dashboard.render import page
from api.dashboard.words import engine, source
from api.dependencies import AppOf, SweepOf
from api.schemas import RankingPage, SweepDetail, SweepRules, TrialDetail, TrialView
from autotuner.domain.runs.trial import Trial, TrialState
from autotuner.ports import Page
from autotuner.search.sweeps.history import all_trials
from autotuner.search.text.sentences import EMULATED

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)

_RANKS_SHOWN = 100

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/sweeps/{sweep_id}")
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


def _told_apart(trial: Trial) -> bool:
    """Whether it is listed with what it is compared with, and not among those that ended without a rank."""
    return trial.repeats is not None and trial.measurement is not None
