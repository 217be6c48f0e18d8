"""Predictions without a sweep."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.documents import Document
from api.errors import IllegalLayout
from api.openapi import problems
from api.schemas import PredictedLayout, PredictionRequest, PredictionTable
from autotuner.bootstrap import App
from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.layout import Layout
from autotuner.search.text.caveats import caveats

__all__ = ["router"]

router = APIRouter(prefix="/predictions", tags=["predictions"])


@router.post("", responses=problems(400, 404, 422))
def predict(app: AppOf, body: Document[PredictionRequest]) -> Document[PredictionTable]:
    """Predict one layout, or the best of a space, without running anything.

    With `layout` the table has that one row. Without it, the `limit` layouts with the highest predicted MFU x
    probability to fit among those that are predicted to fit, how many layouts are legal and fit at all, and what is
    expected of options that the space leaves out. Where none fits, `items` is empty and `shortfall` says how many bytes
    are missing, which change would help and which cluster would do.
    """
    job, space = body.resolved(app)
    if body.layout is not None:
        return _one(app, job, body.layout)
    table = app.predictions(job, space, limit=body.limit)
    return PredictionTable.searched(job, table, app.advice(job, space, table))


def _one(app: App, job: Job, layout: Layout) -> PredictionTable:
    answer = app.predict_one(job, layout)
    if isinstance(answer, tuple):
        raise IllegalLayout(layout, answer)
    said = caveats(job, LayoutColumns.from_layouts([layout]))
    return PredictionTable.of(job, (PredictedLayout.of(1, layout, answer),), caveats=said)
