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

    With `layout` the table has that one row. Without it, the `limit` layouts with the highest predicted MFU among
    those that are predicted to fit, and how many layouts are legal and fit at all.
    """
    job, space = body.resolved(app)
    if body.layout is not None:
        return _one(app, job, body.layout)
    table = app.predictions(job, space, limit=body.limit)
    rows = tuple(PredictedLayout.of(rank, row.layout, row.prediction) for rank, row in enumerate(table.rows, 1))
    counts = {"num_legal": table.num_legal, "num_fitting": table.num_fitting}
    return PredictionTable.of(job, rows, caveats=table.caveats, **counts)


def _one(app: App, job: Job, layout: Layout) -> PredictionTable:
    answer = app.predict_one(job, layout)
    if isinstance(answer, tuple):
        raise IllegalLayout(layout, answer)
    said = caveats(job, LayoutColumns.from_layouts([layout]))
    return PredictionTable.of(job, (PredictedLayout.of(1, layout, answer),), caveats=said)
