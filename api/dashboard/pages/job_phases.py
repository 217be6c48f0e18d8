"""The page of a job of phases: the layout of each, what switches cost, and what staying would."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dashboard.charts.course_bars import course_bars
from api.dashboard.render import page
from api.dashboard.views.job_phases import PhasesAsked, shown_courses
from api.dependencies import AppOf
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.search.job_phases.plan import PhasesPlan, plan_phases
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/phases")
def phases_page(request: Request, app: AppOf) -> Response:
    """The job that the address says, or one to begin with; what is wrong with it stands in the place of the answer."""
    asked, plan = _answered(app, PhasesAsked.of(request.query_params))
    courses = [] if plan is None else list(shown_courses(plan))
    picture = course_bars(courses) if courses else None
    return page(request, "phases.html", given=asked, plan=plan, courses=courses, picture=picture)


def _answered(app: App, asked: PhasesAsked) -> tuple[PhasesAsked, PhasesPlan | None]:
    """The answer; or what is wrong with the question."""
    if asked.errors:
        return asked, None
    try:
        return asked, app.asides.search(plan_phases, asked.request.resolved(app))
    except (InvalidInput, NotFound) as error:
        return asked.with_error(error), None
