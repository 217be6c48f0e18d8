"""Optimizer studies: create, list, read with trials and front, cancel."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dependencies import AppOf, CallerOf, OptimizerStudyId, PageOf
from api.openapi import problems
from api.routes.sweeps import IdempotencyKey
from autotuner.core.documents import Document
from autotuner.core.listed import Listed
from autotuner.core.run import Run
from autotuner.core.study import OptimizerStudy
from autotuner.core.sweep_requests import OptimizerStudyCreate
from autotuner.search.planning.optimizer_study import study_of
from autotuner.service.build import App

router = APIRouter(prefix="/optimizer-studies", tags=["optimizer studies"])

_CREATED_BEFORE = {"model": Document[OptimizerStudy], "description": "This Idempotency-Key created it before."}


@router.post("", status_code=201, responses={200: _CREATED_BEFORE, **problems(400, 404, 409, 422)})
def create_optimizer_study(
    request: Request,
    response: Response,
    app: AppOf,
    caller: CallerOf,
    body: Document[OptimizerStudyCreate],
    idempotency_key: IdempotencyKey = None,
) -> Document[OptimizerStudy]:
    """Queue an optimizer study of a layout.

    Candidates, each an optimizer with its numbers, a batch and a data-parallel degree, are trained one after the other
    until their loss is at the target; searched are those that come there in the least time and for the least
    accelerator-hours. With an `Idempotency-Key` a repeated request creates nothing, as of sweeps.
    """
    study, is_new = app.start(body, key=idempotency_key, caller=caller)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_optimizer_study", study_id=study.id).path
    return _read(app, study)


@router.get("", responses=problems(422))
def list_optimizer_studies(app: AppOf, page: PageOf) -> Document[Listed[OptimizerStudy]]:
    """List optimizer studies, newest first."""
    studies, total = app.store.runs.list("study", page=page)
    return Listed(items=tuple(map(study_of, studies)), total=total, limit=page.limit, offset=page.offset)


@router.get("/{study_id}", responses=problems(404, 422))
def read_optimizer_study(app: AppOf, study_id: OptimizerStudyId) -> Document[OptimizerStudy]:
    """Read an optimizer study: its trials with their loss curves, and the front of time and accelerator-hours.

    A running trial's curve is stored about every second.
    """
    return _read(app, app.read("study", study_id))


@router.post("/{study_id}/cancel", responses=problems(404, 422))
def cancel_optimizer_study(app: AppOf, caller: CallerOf, study_id: OptimizerStudyId) -> Document[OptimizerStudy]:
    """Ask for the end of a study; its running trial is ended first. A finished study stays as it is."""
    app.stop("study", study_id, caller=caller)
    return _read(app, app.read("study", study_id))


def _read(app: App, study: Run) -> OptimizerStudy:
    return study_of(study, app.store.optimizer_studies.trials(study.id))
