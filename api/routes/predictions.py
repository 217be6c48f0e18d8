"""Predictions without a sweep."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from api.dependencies import AppOf
from api.documents import Document
from api.edge.needs import needs
from api.errors import IllegalLayout
from api.openapi import problems
from api.schemas import Current, PredictedLayout, PredictionRequest, PredictionTable
from autotuner.bootstrap import App
from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.access.scope import Scope
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.search import ranking
from autotuner.search.advice import current as comparison
from autotuner.search.advice.current import current_beside
from autotuner.search.text.caveats import caveats

__all__ = ["router"]

router = APIRouter(prefix="/predictions", tags=["predictions"])


@router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def predict(app: AppOf, body: Document[PredictionRequest]) -> Document[PredictionTable]:
    """Predict one layout, or the best of a space, without running anything.

    With `layout` the table has that one row. Without it, the `limit` layouts with the highest predicted MFU x
    probability to fit among those that are predicted to fit, how many layouts are legal and fit at all, and what is
    expected of options that the space leaves out. Where none fits, `items` is empty and `shortfall` says how many bytes
    are missing, which change would help and which cluster would do. With `current`, the layout that runs today, the
    answer says what the best would give in its place; a `current` that breaks rules has their reasons. With `format`,
    only layouts that this trainer can be told are tried.
    """
    job, space, rules = body.resolved(app)
    if body.layout is None:
        table = app.predictions(job, space, limit=body.limit, rules=rules)
        answer = PredictionTable.searched(job, table, app.advice(job, space, table, rules))
        best, unchanged = (table.rows or (None,))[0], table.unchanged
    else:
        best, unchanged = _legal(app, job, body.layout), None
        said = caveats(job, LayoutColumns.from_layouts([best.layout]))
        answer = PredictionTable.of(job, (PredictedLayout.of(1, best.layout, best.prediction),), caveats=said)
    if body.current is None:
        return answer
    return _beside(answer, job, current_beside(body.current, job, best=best, unchanged=unchanged))


def _legal(app: App, job: Job, layout: Layout) -> ranking.PredictedLayout:
    answer = app.predict_one(job, layout)
    if isinstance(answer, tuple):
        raise IllegalLayout(layout, answer)
    return ranking.PredictedLayout(layout=layout, prediction=answer)


def _beside(answer: PredictionTable, job: Job, current: comparison.Current) -> PredictionTable:
    """The table with what runs today, and with what is to be said of that."""
    shown = [item.layout for item in answer.items]
    today = [] if current.predicted is None else [current.layout]
    said = caveats(job, LayoutColumns.from_layouts([*shown, *today]))
    return replace(answer, caveats=said, current=Current.of(current))
