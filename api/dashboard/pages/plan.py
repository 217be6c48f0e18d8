"""The pages of a plan for a training run, and of a job of phases. Their addresses are the questions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.bars import course_bars
from api.dashboard.render import page
from api.dashboard.views.address import Address
from api.dashboard.views.job_phases import PhasesAsked, shown_courses
from api.dashboard.views.plan import PlanAsked, PlanPage
from api.dependencies import AppOf
from autotuner.catalog.models import models
from autotuner.catalog.software import stacks
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound
from autotuner.search.planning.clusters import rentable
from autotuner.search.planning.phases import PhasesPlan
from autotuner.search.planning.plan import PlanView
from autotuner.service.build import App

# The page of a plan: which cluster to take for a training run. Its address is the question.

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live"] | None, Query()]

_FIRST_WAIT_S = 0.3
"""Plans that were computed before are shown at once; others say how far they are."""


@router.get("/plan")
def plan_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """The form, and beside it the plan that the address asks for, or how far it is computed."""
    address = Address.of(request)
    asked, view = _computed(app, PlanAsked.of(dict(address.chosen)))
    shown: dict[str, Any] = {
        "given": asked,
        "view": view,
        "plan": None if view is None or view.answer is None else PlanPage.of(view),
        "live": address.with_(part="live"),
    }
    if part:
        return page(request, "plan/_answer.html", **shown)
    stored = tuple(model.name for model in app.store.list_models())
    names: dict[str, Any] = {"stored here": stored, "catalog": models()}
    choices: dict[str, Any] = {"models": names, "stacks": stacks(), "rentable": rentable()}
    return page(request, "plan/plan.html", **shown, **choices)


def _computed(app: App, asked: PlanAsked) -> tuple[PlanAsked, PlanView | None]:
    """The plan as far as it is computed; with what is wrong with the question, if anything is."""
    if asked.body is None:
        return asked, None
    try:
        run, _ = app.start(asked.body)
        return asked, PlanView.of(app.read("plan", run.id, _FIRST_WAIT_S))
    except AutotunerError as error:
        return asked.with_error(error), None


# The page of a job of phases: the layout of each, what switches cost, and what staying would.


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
        return asked, app.phases(asked.request)
    except (InvalidInput, NotFound) as error:
        return asked.with_error(error), None
