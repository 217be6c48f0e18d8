"""The page of one trial."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.window import Window
from api.dashboard.render import page
from api.dashboard.views.timelines import Shown
from api.dashboard.views.trial import TrialPage
from api.dependencies import AppOf, TrialId
from autotuner.domain.runs.trainer import ExportFormat

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live", "timeline"] | None, Query()]
_Format = Annotated[ExportFormat | None, Query(alias="format")]
_Zoom = Annotated[str | None, Query(max_length=20)]

_TEMPLATES = {None: "trial.html", "live": "trial/_live.html", "timeline": "trial/_timeline.html"}


@router.get("/trials/{trial_id}")
def trial_page(
    request: Request,
    app: AppOf,
    trial_id: TrialId,
    part: _Part = None,
    wanted: _Format = None,
    show: Shown = "both",
    zoom: _Zoom = None,
) -> Response:
    """One trial: how it did, why, what its pipeline does when, what lies one step away, and its launch flags."""
    looked_at = TrialPage.of(app, app.store.get_trial(trial_id), wanted, show, Window.parse(zoom))
    return page(request, _TEMPLATES[part], of=looked_at, timeline=looked_at.timeline)
