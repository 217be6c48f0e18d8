"""The page of one sweep: answer, ranking, pictures, what failed; whole, or the part that a script asks for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.views.address import Address
from api.dashboard.views.sweep import SweepLook
from api.dependencies import AppOf, CallerOf, SweepOf
from autotuner.core.access import Caller
from autotuner.core.sweep import Sweep
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

Part = Literal["live", "ranking", "heat", "metric_front"]
"""Everything that changes while a sweep runs, its ranking, two of its choices, or what no other layout beats."""

_WHOLE = "sweep/sweep.html"


@router.get("/sweeps/{sweep_id}")
def sweep_page(
    request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, part: Annotated[Part | None, Query()] = None
) -> Response:
    """One sweep: what to train with, where it stands, its ranking, what runs and what failed."""
    look = _look(request, app, caller, sweep)
    match part:
        case "ranking":
            return page(request, "sweep/_ranking.html", **look.of_ranking())
        case "heat":
            return page(request, "sweep/_heat.html", **look.of_pairs())
        case "metric_front":
            return page(request, "sweep/_metric_front.html", **look.of_front())
        case "live":
            return page(request, "sweep/_live.html", **look.of_all(with_predicted=True))
        case None:
            return page(request, _WHOLE, **look.of_all(with_predicted=False))


def show_sweep(
    request: Request, app: App, caller: Caller, sweep: Sweep, *, refused: str, status: HTTPStatus
) -> Response:
    """The page with why it was not changed as somebody asked."""
    look = _look(request, app, caller, sweep)
    return page(request, _WHOLE, status=status, **{**look.of_all(with_predicted=False), "refused": refused})


def _look(request: Request, app: App, caller: Caller, sweep: Sweep) -> SweepLook:
    root: str = request.scope.get("root_path", "")
    return SweepLook(app=app, caller=caller, sweep=sweep, address=Address.of(request), root=root)
