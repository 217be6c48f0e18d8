"""Layouts side by side."""

from __future__ import annotations

from fastapi import APIRouter

from api.contenders import asked_about
from api.dependencies import AppOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import ComparisonRequest, LayoutComparison
from autotuner.core.access import Scope
from autotuner.core.documents import Document
from autotuner.core.errors import InvalidInput
from autotuner.search.results.side_by_side import side_by_side

router = APIRouter(tags=["explanations"])


@router.post("/comparisons", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def compare_layouts(app: AppOf, body: Document[ComparisonRequest]) -> Document[LayoutComparison]:
    """Set two to four layouts side by side: trials, sweeps by their best, explored ones, a trainer's own flags.

    What differs, which is faster and whether by more than noise, and through which parts of a step. What was measured
    is compared as measured, anything else as predicted; nothing is run or stored.
    """
    found = asked_about(app, body.of, body.flags)
    for error in found.errors:
        raise error
    if len(found.asked) < 2:
        raise InvalidInput("of", len(found.asked), "must name two to four different layouts, flags counted", 2)
    contenders = [one.contender for one in found.asked]
    compared = app.asides.ask(side_by_side, contenders)
    named, notes = [one.of for one in found.asked], [one.notes for one in found.asked]
    return LayoutComparison.of(compared, contenders, named, notes)
