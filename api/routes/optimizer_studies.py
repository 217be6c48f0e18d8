"""Creates and lists optimizer studies; ``runs`` reads, stops and follows them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from autotuner.api.dependencies import AppOf, CallerOf
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import IdempotencyKey, new_run
from autotuner.core.documents import Document
from autotuner.core.study import StudyRun
from autotuner.core.sweep_requests import OptimizerStudyCreate
from autotuner.search.planning.optimizer_study import with_trials

router = APIRouter(prefix="/optimizer-studies", tags=["optimizer studies"])

_CREATED_BEFORE = {
    "model": Document[StudyRun],
    "description": "An earlier request with this Idempotency-Key created this study.",
}


@router.post("", status_code=201, responses={200: _CREATED_BEFORE, **problems(400, 404, 409, 422)})
def create_optimizer_study(
    request: Request,
    response: Response,
    app: AppOf,
    caller: CallerOf,
    body: Document[OptimizerStudyCreate],
    idempotency_key: IdempotencyKey = None,
) -> Document[StudyRun]:
    """Queue an optimizer study for a layout.

    A candidate is an optimizer with its settings, a batch size and a data-parallel degree. The study trains the
    candidates one after the other, until each reaches the target loss or is stopped early. It looks for the candidates
    that reach the target in the least time and with the fewest accelerator-hours. A repeated request with the same
    `Idempotency-Key` creates no second study.
    """
    study = new_run(StudyRun, request, response, app.start(body, key=idempotency_key, caller=caller))
    return with_trials(study, app.store.optimizer_studies.trials(study.id))
