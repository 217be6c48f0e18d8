"""Plans: where to invest for a training run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.dependencies import AppOf, PlansOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import PlanCreate, PlanView
from autotuner.core.access import Scope
from autotuner.core.documents import Document

router = APIRouter(prefix="/plans", tags=["plans"])

_PlanId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", examples=["5f2b9c1d7e3a4860"])]
_WaitS = Annotated[float, Query(ge=0, le=50, description="How long the answer may wait for the plan.")]
_STILL_COMPUTED = {"model": Document[PlanView], "description": "It is still computed; its Location says how far."}


@router.post("", responses={202: _STILL_COMPUTED, **problems(400, 404, 422)}, openapi_extra=needs(Scope.READ))
def create_plan(
    request: Request, response: Response, app: AppOf, plans: PlansOf, body: Document[PlanCreate]
) -> Document[PlanView]:
    """Compare whole clusters for a training run: which to take, what more would buy, what to try first.

    Clusters of the catalog, hypothetical ones and the caller's own, each with its best layout by prediction: time, cost
    and energy of the run with 80 % intervals, the front of time and cost, what one more node, twice the network or 40
    GB more memory would buy, and small sweeps whose results would make the choice surer by more than they cost. The
    same question has the same id and is computed once, until the release or its catalog changes. Nothing runs.
    """
    view = PlanView.of(plans.ask(body.resolved(app)))
    response.status_code = 202 if view.answer is None else 200
    response.headers["Location"] = request.url_for("read_plan", plan_id=view.id).path
    return view


@router.get("/{plan_id}", responses=problems(400, 404, 422))
def read_plan(plans: PlansOf, plan_id: _PlanId, wait_s: _WaitS = 0.0) -> Document[PlanView]:
    """Read a plan that was asked for: how far it is computed, and once it is, what it says."""
    return PlanView.of(plans.read(plan_id, wait_s))
