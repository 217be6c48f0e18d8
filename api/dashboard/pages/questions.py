"""The pages of questions that need no trial. Their addresses contain the questions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from autotuner.api.dashboard.forms import Question, question_page
from autotuner.api.dependencies import AppOf
from autotuner.core.requests import PhasesRequest, PredictionRequest
from autotuner.report.jobs import phases_report
from autotuner.report.plan import plan_report
from autotuner.report.prediction import predictions_report
from autotuner.search.planning.plan import PlanRun
from autotuner.search.planning.request import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN, PlanRequest
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live"] | None, Query()]

# Predictions without a sweep.

PREDICT = Question(
    title="Predict",
    lead="The best layouts of a job. Predictions only: nothing runs.",
    topic="Job",
    button="Predict",
    request=PredictionRequest,
    ask=App.predict,
    report=predictions_report,
    usual={"model": "llama-3-8b", "cluster": "h100:8", "seq_len": "8192", "global_batch_size": "64"},
    nothing_asked="Predicts for every legal layout of this job its speed, whether it fits in memory, and the parts of "
    "its step time. If no layout fits, the answer says how much memory is missing, and what helps.",
)


@router.get("/predict")
def predict_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show the form for a job and its best predicted layouts; the job comes from the query, or is an example."""
    return question_page(request, app, PREDICT, part)


# The layout of each phase of a job: what switches cost, and what staying would.

PHASES = Question(
    title="Job phases",
    lead="The best layout for each phase of a training run. Predictions only: nothing runs.",
    topic="Job and phases",
    button="Predict",
    request=PhasesRequest,
    ask=App.phases,
    report=phases_report,
    usual={
        "model": "llama-3-8b",
        "cluster": "h100:32",
        "seq_len": "8192",
        "global_batch_size": "512",
        "tokens": "1T",
        "phases": "warm-up: 5 %; batch 128\nmain: 75 %\nthin network: 15 %; bandwidth 10gbit\n"
        "long: 5 %; seq_len 131072; batch 32",
    },
)


@router.get("/phases")
def phases_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show the form for a job with phases, and the best layout for each phase; the query has the job.

    Without a query, the form has an example job. A phase is a part of the training run that has, for example, its own
    sequence length or batch size. Errors of the form are shown in the place of the answer.
    """
    return question_page(request, app, PHASES, part)


# Plans: which cluster to take for a training run.

_FIRST_WAIT_S = 0.3
"""Seconds to wait for a plan. A plan that was computed before is shown at once; else the page shows the progress."""


def _planned(app: App, request: PlanRequest) -> PlanRun:
    """Return the plan, or the part of it that is computed so far."""
    run, _ = app.start(request)
    return app.plans.read(run.id, _FIRST_WAIT_S)


PLAN = Question(
    title="Plan",
    lead="Which cluster to take for a training run. Predictions only: nothing runs.",
    topic="Training run",
    button="Compare clusters",
    request=PlanRequest,
    ask=_planned,
    report=lambda request, run: plan_report(run),
    usual={
        "model": "llama-3-70b",
        "tokens": "2T",
        "deadline": "60d",
        "seq_len": f"{USUAL_SEQ_LEN}",
        "global_batch_size": f"{USUAL_GLOBAL_BATCH}",
    },
    progress=lambda run: None if run.result is not None else (run.progress.num_done, run.progress.num_known),
    nothing_asked="Finds the cheapest cluster of the catalog that trains this model in time, and says how certain "
    "that is. It also shows the gain from one more node, from twice the network bandwidth and from more "
    "memory, and a small sweep to run before you spend the money. The answer takes some seconds.",
)


@router.get("/plan")
def plan_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show the form for a plan, which compares clusters for a training run, and the plan that the query asks for.

    While the plan is computed, the page shows the progress.
    """
    return question_page(request, app, PLAN, part)
