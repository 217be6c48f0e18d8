"""The page of a job of phases: the layout of each, what switches cost, and what staying would."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from api.dashboard.charts.course_bars import course_bars
from api.dashboard.render import page
from api.dashboard.views.job_phases import PhasesAsked, shown_courses
from api.dependencies import AppOf
from autotuner.errors import InvalidInput, NotFound
from autotuner.search.job_phases.plan import plan_phases

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/phases")
def phases_page(request: Request, app: AppOf) -> Response:
    """The job that the address says, or one to begin with; what is wrong with it stands in the place of the answer."""
    asked = PhasesAsked.of(request.query_params)
    shown: dict[str, Any] = {"given": asked.texts, "wrong": ("", ""), "plan": None}
    try:
        plan = app.asides.search(plan_phases, asked.request.resolved(app))
    except (InvalidInput, NotFound) as error:
        return page(request, "phases.html", **shown | {"wrong": asked.wrong(error)})
    courses = list(shown_courses(plan))
    return page(request, "phases.html", **shown | {"plan": plan, "courses": courses, "picture": course_bars(courses)})
