"""The page of one trial."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.words import engine, source
from api.dependencies import AppOf, TrialId
from api.schemas import LayoutExplanation, TrialDetail
from autotuner.bootstrap import App
from autotuner.domain.runs.trainer import ExportFormat
from autotuner.domain.runs.trial import Trial
from autotuner.errors import InvalidInput
from autotuner.export.registry import TARGETS, export
from autotuner.search.text.sentences import EMULATED

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live"] | None, Query()]
_Format = Annotated[ExportFormat | None, Query(alias="format")]


@router.get("/trials/{trial_id}")
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


def _explanation(app: App, trial: Trial) -> LayoutExplanation | None:
    """None where a rule that is younger than the trial forbids its layout."""
    try:
        return LayoutExplanation.of_trial(app, trial)
    except InvalidInput:
        return None
