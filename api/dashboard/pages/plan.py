"""The page of a plan: which cluster to take for a training run. Its address is the question."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.views.address import Address
from api.dashboard.views.plan import PlanPage
from api.dashboard.views.plan_asked import PlanAsked
from api.dependencies import AppOf, PlansOf
from api.plans import Plans
from api.schemas import PlanView
from autotuner.catalog.models import models
from autotuner.catalog.software import stacks
from autotuner.core.errors import AutotunerError
from autotuner.search.planning.whole_clusters import rentable
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live"] | None, Query()]

_FIRST_WAIT_S = 0.3
"""Plans that were computed before are shown at once; others say how far they are."""


@router.get("/plan")
def plan_page(request: Request, app: AppOf, plans: PlansOf, part: _Part = None) -> Response:
    """The form, and beside it the plan that the address asks for, or how far it is computed."""
    address = Address.of(request)
    asked, view = _computed(app, plans, PlanAsked.of(dict(address.chosen)))
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


def _computed(app: App, plans: Plans, asked: PlanAsked) -> tuple[PlanAsked, PlanView | None]:
    """The plan as far as it is computed; with what is wrong with the question, if anything is."""
    if asked.body is None:
        return asked, None
    try:
        plan_id = plans.ask(asked.body.resolved(app)).id
        return asked, PlanView.of(plans.read(plan_id, _FIRST_WAIT_S))
    except AutotunerError as error:
        return asked.with_error(error), None
