"""The pages of optimizer studies: the list, and one study with its curves, its Pareto front and its candidates."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from autotuner.api.dashboard.render import report_page, service_of
from autotuner.api.dependencies import AppOf, CallerOf, RunId
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.study import StudyRun
from autotuner.report.report import Pager
from autotuner.report.study import studies_report, study_report
from autotuner.search.planning.optimizer_study import with_trials
from autotuner.store.options import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_STUDIES_PER_PAGE = 50

_Part = Annotated[Literal["live"] | None, Query()]
_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _STUDIES_PER_PAGE)]


@router.get("/optimizer-studies")
def studies_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """Show all optimizer studies (searches for the fastest optimizer settings), newest first."""
    window = Page(limit=_STUDIES_PER_PAGE, offset=(number - 1) * _STUDIES_PER_PAGE)
    studies, total = app.store.runs.list(StudyRun, page=window)
    pager = Pager.of("optimizer-studies", number, is_last=window.offset + window.limit >= total)
    report = studies_report(studies, total, service_of(request), pager)
    return report_page(request, report, part=part, every_s=3)


@router.get("/optimizer-studies/{study_id}")
def study_page(request: Request, app: AppOf, caller: CallerOf, study_id: RunId, part: _Part = None) -> Response:
    """Show one optimizer study: its Pareto front of time and accelerator-hours, its loss curves, and all candidates.

    A candidate is an optimizer with its settings, a batch size and a data-parallel degree.
    """
    study = app.store.runs.get(StudyRun, study_id)
    study = with_trials(study, app.store.optimizer_studies.trials(study_id))
    every_s = None if study.finished_at is not None else 3
    parent, own = ("All optimizer studies", "/optimizer-studies"), f"/api/v1/runs/{study_id}"
    report = study_report(study, has_buttons=caller.may_change(study.created_by))
    return report_page(request, report, part=part, every_s=every_s, parent=parent, json=own)


@router.post("/optimizer-studies/{study_id}/cancel")
def cancel_study(request: Request, app: AppOf, caller: CallerOf, study_id: RunId) -> Response:
    """Cancel an optimizer study and the training that it runs now, and redirect to the study's page."""
    app.stop(study_id, caller=caller)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/optimizer-studies/{study_id}", 303)
