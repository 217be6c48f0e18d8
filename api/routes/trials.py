"""Trials across sweeps: one by its id, and the ranking of all."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api import examples, views
from api.dataclass_schema import schema_of
from api.dependencies import AppOf, PageOf, TrialFilterOf, TrialId
from api.openapi import answers
from api.schemas import RankingPage, TrialDetail
from autotuner.domain.wire import to_dict

__all__ = ["router"]

router = APIRouter(tags=["trials"])


@router.get(
    "/trials/{trial_id}",
    response_model=schema_of(TrialDetail),
    responses=answers(examples.trial_detail(), 404, 422),
)
def read_trial(app: AppOf, trial_id: TrialId) -> Any:
    """Read a trial: layout, prediction, measurement or failure, and every step."""
    return to_dict(views.trial_detail(app.store.get_trial(trial_id)))


@router.get("/ranking", response_model=schema_of(RankingPage), responses=answers(examples.ranking_page(), 422))
def rank_all(app: AppOf, where: TrialFilterOf, page: PageOf) -> Any:
    """Rank the complete trials of all sweeps by measured MFU, highest first."""
    trials, total = app.store.ranking(where=where, page=page)
    return to_dict(RankingPage(items=views.ranked(trials, page), total=total, limit=page.limit, offset=page.offset))
