"""The pages of optimizer studies: all of them, and one with its curves, its front and its candidates."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.charts.study import study_curves, study_front
from api.dashboard.render import page
from api.dependencies import AppOf
from api.owned import OptimizerStudyId
from api.schemas.optimizer_studies import OptimizerStudyDetail, OptimizerStudyPage
from autotuner.core.documents import MAX_INTEGER
from autotuner.store.options import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_STUDIES_PER_PAGE = 50

_Part = Annotated[Literal["live"] | None, Query()]
_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _STUDIES_PER_PAGE)]


@router.get("/optimizer-studies")
def studies_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """All studies, newest first."""
    window = Page(limit=_STUDIES_PER_PAGE, offset=(number - 1) * _STUDIES_PER_PAGE)
    studies = OptimizerStudyPage.of(app, window)
    return page(
        request,
        "_optimizer_studies.html" if part else "optimizer_studies.html",
        studies=studies.items,
        total=studies.total,
        number=number,
        is_last=window.offset + window.limit >= studies.total,
        service=str(request.base_url).rstrip("/"),
    )


@router.get("/optimizer-studies/{study_id}")
def study_page(request: Request, app: AppOf, study_id: OptimizerStudyId, part: _Part = None) -> Response:
    """One study: the front of time and accelerator-hours, the loss curves, and all candidates."""
    study = OptimizerStudyDetail.of_study(app, app.read("study", study_id))
    return page(
        request,
        "_optimizer_study.html" if part else "optimizer_study.html",
        study=study,
        best=[trial for number in study.front for trial in study.trials if trial.number == number],
        curves=study_curves(study.trials, study.target_loss),
        front=study_front(study.trials),
        tried=sorted(study.trials, key=lambda one: (one.reached.time_s if one.reached else float("inf"), one.number)),
    )
