"""Predictions without a sweep."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import PredictionRequest, PredictionTable
from autotuner.core.access import Scope
from autotuner.core.documents import Document

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
    return app.predict(body)
