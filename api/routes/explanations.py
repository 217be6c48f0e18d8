"""Why a layout is predicted as it is, and what measured layouts teach."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from api import examples, views
from api.body import CodecBody
from api.dataclass_schema import schema_of
from api.dependencies import AppOf, SweepOf, TrialId
from api.errors import IllegalLayout
from api.openapi import answers
from api.requests import job_of
from api.schemas import ExplanationRequest, LayoutExplanation, SweepRules
from autotuner.domain.legality import reasons
from autotuner.domain.wire import to_dict
from autotuner.search.explain.explanation import explain
from autotuner.search.sweeps.history import all_trials

__all__ = ["router"]

router = APIRouter(tags=["explanations"])

_ExplanationBody = Annotated[
    ExplanationRequest, CodecBody(ExplanationRequest), Body(openapi_examples=examples.explanation_bodies())
]


@router.post(
    "/explanations",
    response_model=schema_of(LayoutExplanation),
    responses=answers(examples.explanation(), 400, 404, 422),
)
def explain_layout(app: AppOf, body: _ExplanationBody) -> Any:
    """Explain a layout without running anything.

    Where its time goes and what limits each part, how its memory is made up and how far it lies from the limit, and
    the changes of one step that would help, would not fit, or cannot run.
    """
    job = job_of(app, body)
    if broken := reasons(body.layout, job):
        raise IllegalLayout(to_dict(body.layout), broken)
    return to_dict(views.explanation(explain(body.layout, job)))


@router.get(
    "/trials/{trial_id}/explanation",
    response_model=schema_of(LayoutExplanation),
    responses=answers(examples.explanation(), 404, 422),
)
def explain_trial(app: AppOf, trial_id: TrialId) -> Any:
    """Explain a trial's layout as today's cost model predicts it; what was measured is in the trial itself."""
    return to_dict(views.trial_explanation(app.store, app.store.get_trial(trial_id)))


@router.get(
    "/sweeps/{sweep_id}/rules",
    response_model=schema_of(SweepRules),
    responses=answers(examples.sweep_rules(), 404, 422),
)
def read_rules(app: AppOf, sweep: SweepOf) -> Any:
    """State what the sweep's measured trials say about one choice at a time.

    Pairs of measured layouts that differ in one choice alone: how many there are, how many became faster, and by how
    much in the median and at the ends. The six subjects of arXiv 2311.05610 come first, without pairs too.
    """
    return to_dict(views.sweep_rules(all_trials(app.store, sweep.id)))
