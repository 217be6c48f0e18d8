"""The page of one trial."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.timeline import Window
from api.dashboard.render import page
from api.dashboard.views.timelines import Shown
from api.dashboard.views.trial import TrialPage, bandwidth_of, links_of, ranks_of, timeline_of
from api.dashboard.views.trial_heading import LookedAt
from api.dependencies import AppOf, TrialId
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import MAX_INTEGER

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live", "timeline", "links", "ranks"] | None, Query()]
_Format = Annotated[ExportFormat | None, Query(alias="format")]
_Zoom = Annotated[str | None, Query(max_length=20)]
_Rank = Annotated[int, Query(ge=0, le=MAX_INTEGER)]


@router.get("/trials/{trial_id}")
def trial_page(
    request: Request,
    app: AppOf,
    trial_id: TrialId,
    part: _Part = None,
    wanted: _Format = None,
    show: Shown = "both",
    zoom: _Zoom = None,
    near: _Zoom = None,
    rank: _Rank = 0,
) -> Response:
    """One trial: how it did, why, what its pipeline does when, what lies one step away, and its launch flags."""
    looked_at = LookedAt(
        format=wanted, show=show, window=Window.parse(zoom), links_window=Window.parse(near), rank=rank
    )
    trial = app.store.get_trial(trial_id)
    match part:
        case "timeline":
            return page(request, "trial/_timeline.html", timeline=timeline_of(app, trial, looked_at))
        case "links":
            return page(request, "trial/_links.html", links=links_of(app, trial, looked_at))
        case "ranks":
            return page(request, "trial/_ranks.html", ranks=ranks_of(app, trial, looked_at))
    shown = TrialPage.of(app, trial, looked_at)
    pieces: dict[str, Any] = {"timeline": shown.timeline, "links": shown.links, "ranks": shown.ranks}
    if part:
        return page(request, "trial/_live.html", of=shown, **pieces)
    return page(request, "trial.html", of=shown, bandwidth=bandwidth_of(app, trial), **pieces)
