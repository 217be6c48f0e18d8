"""Predictions without a sweep."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from api import examples, views
from api.body import CodecBody
from api.dataclass_schema import schema_of
from api.dependencies import AppOf
from api.errors import IllegalLayout
from api.openapi import answers
from api.requests import job_of, space_of
from api.schemas import PredictionRequest, PredictionTable
from autotuner.bootstrap import App
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.wire import to_dict
from autotuner.errors import InvalidInput

__all__ = ["router"]

router = APIRouter(prefix="/predictions", tags=["predictions"])

_MAX_ROWS = 1000

_PredictionBody = Annotated[
    PredictionRequest, CodecBody(PredictionRequest), Body(openapi_examples=examples.prediction_bodies())
]


@router.post(
    "",
    response_model=schema_of(PredictionTable),
    responses=answers(examples.prediction_table(), 400, 404, 422),
)
def predict(
    app: AppOf,
    body: _PredictionBody,
) -> Any:
    """Predict one layout, or the best of a space, without running anything.

    With `layout` the table has that one row. Without it, the `limit` layouts with the highest predicted MFU among
    those that are predicted to fit, and how many layouts are legal and fit at all.
    """
    job = job_of(app, body)
    return to_dict(_one(app, job, body) if body.layout else _table(app, job, body))


def _one(app: App, job: Job, body: PredictionRequest) -> PredictionTable:
    layout = body.layout
    assert isinstance(layout, Layout)
    if body.space:
        raise InvalidInput("space", body.space, "must be left out when a layout is given")
    answer = app.predict_one(job, layout)
    if isinstance(answer, tuple):
        raise IllegalLayout(to_dict(layout), answer)
    row = views.predicted_layout(1, layout, answer)
    return PredictionTable(items=(row,), num_legal=None, num_fitting=None)


def _table(app: App, job: Job, body: PredictionRequest) -> PredictionTable:
    if not 1 <= body.limit <= _MAX_ROWS:
        nearest = min(max(body.limit, 1), _MAX_ROWS)
        raise InvalidInput("limit", body.limit, f"must lie in 1..{_MAX_ROWS}", nearest)
    table = app.predictions(job, space_of(body.space, job.cluster), limit=body.limit)
    rows = tuple(views.predicted_layout(rank, r.layout, r.prediction) for rank, r in enumerate(table.rows, 1))
    return PredictionTable(items=rows, num_legal=table.num_legal, num_fitting=table.num_fitting)
